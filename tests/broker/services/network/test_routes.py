"""Measured routes on a broker: users of a site learn from each other, and coget from the broker."""

import json
import time
from pathlib import Path

import httpx
import pytest

from broker.storage.routes import RouteStore
from tests.broker.services.network.test_depots import put
from tests.support.broker import BrokerProcess
from tests.support.coget import coget, patient
from tests.support.depot import LOOPBACK, depots
from tests.support.gridftp import GridFTPServer

B = "/broker/v1"
MIB = 1 << 20
DAY = 86_400.0


def measured(route: str, opening: float, beginning: float, /, **changed: object) -> dict[str, object]:
    use = {"bytes": MIB, "seconds": 1.0, "sessions": 1, "opening_seconds": opening, "beginning": MIB}
    server = {"scheme": "ftp", "host": "ftp.example", "ended": time.time()}
    return {**server, "route": route, **use, "beginning_seconds": beginning, **changed}


async def report(client: httpx.AsyncClient, *routes: dict[str, object], sink: str = "CERN") -> httpx.Response:
    return await client.post(f"{B}/depot-routes", json={"sink": sink, "routes": routes})


async def expected(client: httpx.AsyncClient, sink: str = "CERN", host: str = "ftp.example") -> list[tuple[str, float]]:
    answer = await client.get(f"{B}/depot-routes", params={"host": host, "sink": sink})
    assert answer.status_code == 200, answer.text
    return [(each["route"], each["seconds"]) for each in answer.json()["routes"]]


async def test_users_of_a_site_learn_from_each_other(stocked, broker):
    ann, bob = await broker.client("transfer"), await broker.client("reader")
    await put(stocked, "depot-a")
    answer = await report(ann, measured("none", 1, 2), measured("depot-a.example:4000", 1, 0.5), measured("none", 1, 4))
    assert (answer.status_code, answer.json()) == (200, {"stored": 3})
    assert await expected(bob) == [("depot-a.example:4000", 1.5), ("none", 3.0)]
    assert await expected(bob, host="other.example") == []
    assert await expected(bob, sink="DESY") == []
    assert await expected(ann, sink="DESY") == [("depot-a.example:4000", 1.5), ("none", 3.0)]


async def test_each_reporter_has_one_vote_and_repeats_do_not_count(stocked, broker):
    for name, opening, times in (("transfer", 1, 5), ("curator", 2, 1), ("admin", 3, 1)):
        client, one = await broker.client(name), measured("none", opening, 0)
        for _ in range(2):
            await report(client, *(measured("none", opening, 0) for _ in range(times)), one)
    assert await expected(await broker.client("reader")) == [("none", 2.0)]


async def test_without_a_site_only_own_measurements_count(stocked, broker):
    ann, bob = await broker.client("transfer"), await broker.client("reader")
    await report(ann, measured("none", 1, 1), sink="")
    assert await expected(ann, sink="") == [("none", 2.0)]
    assert await expected(bob, sink="") == []


async def test_replicas_and_plans_have_the_measured_routes_to_their_servers(stocked, broker):
    ann, bob, name = await broker.client("transfer"), await broker.client("reader"), "run1:2024/a.root"
    host = "cern-1.example"
    await put(stocked, "depot-a")
    await report(
        ann, measured("none", 1, 2, host=host), measured("depot-a.example:4000", 1, 0.5, host=host), sink="FNAL"
    )
    known = {"cern-1": [{"route": "depot-a.example:4000", "seconds": 1.5}, {"route": "none", "seconds": 3.0}]}
    found = await bob.post(f"{B}/replicas/resolve", json={"names": [name], "sink": "FNAL"})
    replicas = json.loads(found.text.splitlines()[0])["replicas"]
    plan = await bob.post(f"{B}/plans", json={"name": name, "sink": "FNAL"})
    for each in (*replicas, *plan.json()["shares"]):
        assert each["routes"] == known.get(each["endpoint"], [])
    assert len(replicas) == len(plan.json()["shares"]) == 3
    elsewhere = await bob.post(f"{B}/replicas/resolve", json={"names": [name], "sink": "CERN"})
    assert not any(each["routes"] for each in json.loads(elsewhere.text.splitlines()[0])["replicas"])


async def test_many_invented_routes_neither_grow_answers_nor_hide_the_direct_one(stocked, broker):
    ann, bob, mallory = [await broker.client(role) for role in ("curator", "reader", "transfer")]
    await put(stocked, "depot-a")
    await report(ann, measured("none", 1, 2), measured("depot-a.example:4000", 1, 1))
    invented = [measured(f"e{i}.example:1", 0, 0) for i in range(30)]
    chains = [measured(f"depot-a.example:4000,e{i}.example:1", 0, 0) for i in range(30)]
    await report(mallory, *invented, *chains)
    assert await expected(bob) == [("depot-a.example:4000", 2.0), ("none", 3.0)]
    own = await expected(mallory)
    assert len(own) == 5
    assert ("none", 3.0) in own


async def test_the_routes_with_the_most_reporters_are_left(stocked, broker):
    names = [f"depot-{i}" for i in range(8)]
    for name in names:
        await put(stocked, name)
    routes = [f"{name}.example:4000" for name in names]
    await report(await broker.client("transfer"), *(measured(route, 0, 0) for route in routes), measured("none", 9, 0))
    for role in ("curator", "admin"):
        await report(await broker.client(role), measured(routes[-1], 5, 0))
    found = [route for route, _ in await expected(await broker.client("reader"))]
    assert len(found) == 5
    assert {"none", routes[-1]} < set(found)


async def test_old_future_and_small_measurements_do_not_count(stocked, broker):
    ann, now = await broker.client("transfer"), time.time()
    old, future = measured("none", 1, 1, ended=now - 8 * 86400), measured("none", 1, 1, ended=now + 86400)
    answer = await report(ann, old, future, measured("none", 1, 1, beginning=1000))
    assert answer.json() == {"stored": 1}
    assert await expected(ann) == []


async def test_the_newest_five_count(stocked, broker):
    ann, now = await broker.client("transfer"), time.time()
    await report(ann, *(measured("none", 9 if ago > 4 else 1, 0, ended=now - ago) for ago in range(20)))
    assert await expected(ann) == [("none", 1.0)]


async def kept(broker, since: float = 0) -> dict[str, int]:
    """Return the number of stored measurements by reporter."""
    async with broker.factory.database.read() as connection:
        found = await RouteStore(connection).used(None, since, 1e11, 10**6)
    counts: dict[str, int] = {}
    for each in found.days:
        counts[each.reporter] = counts.get(each.reporter, 0) + each.uses
    return counts


async def test_measurements_are_kept_for_reports_when_they_are_not_valid_any_more(stocked, broker, monkeypatch):
    ann, now = await broker.client("transfer"), time.time()
    await report(ann, measured("none", 1, 1, ended=now), measured("none", 1, 1, ended=now - 60))
    monkeypatch.setattr(time, "time", lambda: now + 399 * DAY)
    await report(ann, measured("none", 1, 1, ended=now + 399 * DAY))
    assert await kept(broker) == {"a-transfer": 3}
    assert await expected(ann) == [("none", 2.0)]
    monkeypatch.setattr(time, "time", lambda: now + 400 * DAY)
    await report(ann, measured("none", 1, 1, ended=now + 400 * DAY))
    assert await kept(broker) == {"a-transfer": 3}


async def test_the_newest_measurements_of_each_reporter_are_kept(stocked, broker, monkeypatch):
    monkeypatch.setattr("broker.services.network.routes.MOST_KEPT", 5)
    ann, bob, now = await broker.client("transfer"), await broker.client("curator"), time.time()
    await report(bob, *(measured("none", 1, 1, ended=now - 100 - ago) for ago in range(3)))
    for ago in range(9, -1, -3):
        await report(ann, *(measured("none", 1, 1, ended=now - ago + less) for less in (0.0, 0.3, 0.6)))
    assert await kept(broker) == {"a-transfer": 5, "a-curator": 3}
    assert await kept(broker, now - 3.1) == {"a-transfer": 5}
    await report(ann, *(measured("none", 1, 1, ended=now + 1, host=f"h{n}.example") for n in range(20)))
    assert (await kept(broker)).get("a-transfer", 0) <= 5, "of equal ends"


async def test_measurements_are_deleted_with_the_transfers(stocked, broker):
    ann, now = await broker.client("transfer"), time.time()
    await report(ann, measured("none", 1, 1, ended=now - 6 * DAY), measured("none", 1, 1, ended=now))
    await broker.factory.transfers.forget(now + 32 * DAY)
    assert await kept(broker) == {}


async def test_an_ignored_reporter_has_no_influence(stocked, broker):
    ann = await broker.client("transfer")
    await report(ann, measured("none", 1, 1))
    subject = (await ann.get(f"{B}/whoami")).json()["subject"]
    (await stocked.put(f"{B}/ignored-subjects", json={"subject": subject})).raise_for_status()
    assert await expected(await broker.client("reader")) == []


@pytest.mark.parametrize(
    "wrong",
    [
        *(
            {"route": ""},
            {"route": "a b"},
            {"route": "a:0"},
            {"route": "auto"},
            {"route": "none,a"},
            {"route": "a,a"},
            {"host": "a/b"},
            {"scheme": "FTP"},
            {"beginning_seconds": -1},
        ),
        *({"opening_seconds": 1e10}, {"sessions": 1.5}),
    ],
)
async def test_a_malformed_measurement_is_refused(stocked, broker, wrong: dict[str, object]):
    assert (await report(await broker.client("transfer"), measured("none", 1, 1, **wrong))).status_code == 422


def test_coget_learns_from_the_transfers_of_others(tmp_path: Path):
    database = f"sqlite:///{tmp_path / 'broker.sqlite'}"
    with (
        GridFTPServer(tmp_path / "export") as server,
        depots(tmp_path, LOOPBACK) as (depot,),
        BrokerProcess(database, tmp_path, "") as broker,
    ):
        (server.root / "file").write_bytes(b"x" * 2_000_000)
        admin = broker.client()
        admin.put(f"{B}/sites/S", json={"name": "S"}).raise_for_status()
        place = {"name": "depot-a", "site": "S", "host": "127.0.0.1", "port": depot.place.port}
        admin.put(f"{B}/depots/depot-a", json=place).raise_for_status()
        waits = patient(tmp_path)
        ann, bob = (
            {**user(admin, name), "COGET_HISTORY": str(tmp_path / f"{name}.sqlite"), **waits} for name in ("ann", "bob")
        )
        plan = ["plan", "--via", "auto", server.url("file")]
        assert "which is faster is unknown" in coget(plan, tmp_path, COGET_BROKER=broker.url, **bob).stdout
        for words in (["probe", "--via", "auto"], ["--quiet", "--via", str(depot.place), "-o", "here"]):
            done = coget([*words, server.url("file")], tmp_path, COGET_BROKER=broker.url, **ann)
            assert done.returncode == 0, done.stderr
        shown = coget(plan, tmp_path, COGET_BROKER=broker.url, **bob).stdout
        assert f"over {depot.place} (" in shown
        assert "which is faster is unknown" not in shown
        routes = admin.get(f"{B}/depot-routes", params={"host": "127.0.0.1", "sink": "S"}).json()["routes"]
        assert {each["route"] for each in routes} == {"none", str(depot.place)}


def user(admin: httpx.Client, name: str) -> dict[str, str]:
    """Return the environment of a new user of site S."""
    token = admin.post(f"{B}/tokens", json={"subject": name, "role": "transfer"}).json()["token"]
    return {"COGET_BROKER_TOKEN": token, "COGET_SITE": "S"}
