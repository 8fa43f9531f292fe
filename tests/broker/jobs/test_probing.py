"""Probes between endpoints in idle times: links without data, within a budget."""

import asyncio
import functools
import time
from random import Random

import pytest

from broker.config.settings import Probing, Settings, configured
from broker.errors import Conflict, Forbidden, Invalid, NotFound
from broker.jobs.probing import STALE, Prober, due
from broker.models.callers import Caller
from broker.models.history import Pair
from broker.services.network.probes import Probes
from broker.storage.lanes import LaneStore
from broker.storage.probes import EndpointLink
from tests.broker.conftest import running
from tests.support.waiting import PATIENCE

NOW = 1_700_000_000.0
WAYS = [EndpointLink(a, b, Pair(f"ftp://{a}", b.upper())) for a, b in ("ab", "ba", "ac", "ca")]


def test_blind_ways_come_first_then_the_stalest():
    used = {way: NOW - STALE - i for i, way in enumerate(WAYS[:3])}
    assert due(WAYS, [], used, NOW, Random(0)) == WAYS[3]
    assert due(WAYS[:3], [], used, NOW, Random(0)) == WAYS[2]
    assert due(WAYS[:3], [], dict.fromkeys(WAYS[:3], NOW - 60), NOW, Random(0)) is None
    assert due([], [], {}, NOW, Random(0)) is None


def test_requested_links_are_measured_first():
    assert due(WAYS, [("x", "y"), ("c", "a"), ("a", "b")], {}, NOW, Random(0)) == WAYS[3]
    fresh = dict.fromkeys(WAYS, NOW - 60)
    assert due(WAYS, [("a", "b")], fresh, NOW, Random(0)) == WAYS[0]
    assert due(WAYS, [("x", "y")], fresh, NOW, Random(0)) is None


@pytest.fixture
async def servers(start_gridftp, tmp_path, admin):
    """Three writable endpoints, each at its own site, and one read-only endpoint."""
    started = [start_gridftp(tmp_path / f"server{n}", host=f"127.0.0.{n}") for n in (2, 3, 4)]
    for server, name in zip(started, ("one", "two", "closed"), strict=True):
        await admin.put(f"/broker/v1/sites/{name}-site", json={"name": f"{name}-site"})
        endpoint = {
            "name": name,
            "site": f"{name}-site",
            "scheme": "ftp",
            "host": server.host,
            "port": server.port,
            "prefix": str(server.root),
            "write_priority": int(name != "closed"),
        }
        assert (await admin.put(f"/broker/v1/endpoints/{name}", json=endpoint)).status_code == 200
    return started


def prober(broker, a_day=100_000_000):
    factory = broker.factory
    return Prober(factory.database, factory.places, factory.transfers, Probing(a_day, 1_000_000, 5.0))


async def reported(admin):
    return (await admin.get("/broker/v1/transfers")).json()["transfers"]


async def test_each_way_is_measured_once_and_leaves_nothing(broker, admin, servers):
    probing = prober(broker)
    assert [await probing.probe() for _ in range(3)] == [True, True, False]
    found = await reported(admin)
    assert {(each["source"], each["sink"]) for each in found} == {
        (f"ftp://127.0.0.2:{servers[0].port}", "two-site"),
        (f"ftp://127.0.0.3:{servers[1].port}", "one-site"),
    }
    assert {each["outcome"] for each in found} == {"ok"}
    assert [path for server in servers for path in server.root.iterdir()] == []


async def test_links_with_reported_transfers_are_not_measured(broker, admin, servers):
    now = time.time()
    report = {"id": "x", "source": "one", "sink": "two-site", "started": now - 9, "ended": now - 5, "bytes": 10**8}
    assert (await admin.post("/broker/v1/transfers", json=report)).status_code == 200
    probing = prober(broker)
    assert [await probing.probe() for _ in range(2)] == [True, False]


async def test_two_that_measure_at_once_measure_different_ways(broker, admin, servers):
    assert sorted(await asyncio.gather(*(prober(broker).probe() for _ in range(4)))) == [False, False, True, True]
    assert len(await reported(admin)) == 2


def wanting(broker, role="curator", a_day=100_000_000):
    factory = broker.factory
    probes = Probes(factory.database, factory.places, Probing(a_day, 1_000_000, 5.0))
    return functools.partial(probes.want, Caller(subject="ann", role=role))


async def test_a_way_that_a_curator_wants_measured_is_although_it_was_just_used(broker, admin, servers):
    probing, want = prober(broker), wanting(broker)
    assert [await probing.probe() for _ in range(3)] == [True, True, False]
    for _ in range(2):
        await want("two", "one")
    assert [await probing.probe() for _ in range(2)] == [True, False]
    assert (await reported(admin))[0]["sink"] == "one-site"
    audit = (await admin.get("/broker/v1/audit")).json()["entries"]
    assert [(each["subject"], each["thing"]) for each in audit if each["action"] == "want probe"] == [
        ("ann", "two to one")
    ]


async def test_a_requested_measurement_waits_for_the_budget(broker, admin, servers):
    await wanting(broker)("two", "one")
    assert not await prober(broker, a_day=500_000).probe()
    assert await prober(broker).probe()
    assert [each["sink"] for each in await reported(admin)] == ["one-site"]


async def test_requests_for_impossible_measurements_are_refused(broker, admin, servers):
    for source, sink, kind in (
        ("nosuch", "one", NotFound),
        ("one", "<b>", NotFound),
        ("one", "one", Invalid),
        ("one", "closed", Invalid),
        ("closed", "one", Invalid),
    ):
        with pytest.raises(kind):
            await wanting(broker)(source, sink)
    with pytest.raises(Forbidden):
        await wanting(broker, "transfer")("one", "two")
    with pytest.raises(Conflict, match="measures no links"):
        await broker.factory.probes.want(Caller(subject="ann", role="admin"), "one", "two")


async def test_the_budget_of_a_day_is_kept(broker, admin, servers):
    probing = prober(broker, a_day=1_500_000)
    assert [await probing.probe() for _ in range(2)] == [True, False]


async def test_a_server_that_is_down_is_not_asked_again_at_once(broker, admin, servers):
    servers[1].kill()
    probing = prober(broker)
    assert [await probing.probe() for _ in range(3)] == [True, True, False]
    assert {each["outcome"] for each in await reported(admin)} == {"failed"}


async def test_links_are_not_measured_while_tasks_run(broker, admin, servers, monkeypatch):
    async def one(_):
        return ["a lane"]

    monkeypatch.setattr(LaneStore, "open", one)
    assert not await prober(broker).probe()


async def test_a_broker_configured_to_probe_measures_by_itself(database, broker, admin, servers):
    async with running(Settings(database, probing=Probing(10**9, 1_000_000, 5.0))) as other:
        client = await other.client("reader")
        async with asyncio.timeout(PATIENCE):
            while len(await reported(client)) < 2:  # noqa: ASYNC110 - it is the database that is asked
                await asyncio.sleep(0.1)


def test_the_config_file_limits_what_probing_may_use(tmp_path):
    file = tmp_path / "broker.toml"
    file.write_text('[probing]\na_day = "50 GB"\nbytes = "8 MB"\nseconds = 2')
    assert configured(Settings(), file).probing == Probing(50 * 10**9, 8_000_000, 2.0)
    for wrong in ('a_day = "much"', 'bytes = "1 MB"', "a_day = 1\nways = 3", "a_day = 1\nseconds = 0"):
        file.write_text(f"[probing]\n{wrong}")
        with pytest.raises(Invalid, match=r"\[probing\]"):
            configured(Settings(), file)
