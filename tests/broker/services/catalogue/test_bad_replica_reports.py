"""Reports of several subjects: no single user decides what others are told."""

import json
import time

import pytest
from click.testing import CliRunner

from broker.cli import broker as command
from broker.config.settings import Settings
from broker.models.callers import NewToken
from broker.services.catalogue.bad_replica_reports import changed_states
from broker.services.forecasting import all_links, link_forecasters
from broker.services.forecasting.per_subject import MOST, OWN, middle_of
from broker.storage.bad_replica_reports import ReplicaStanding
from broker.storage.database import addressed
from broker.storage.migration import upgrade
from predictors.observation import Forecast, Rates
from tests.broker.conftest import running

A = "run1:2024/a.root"
T = "/broker/v1/transfers"
BAD = "/broker/v1/replicas/bad"
RESOLVE = "/broker/v1/replicas/resolve"
MB = 1_000_000
DAY = 86_400.0


@pytest.fixture(autouse=True)
def patient(monkeypatch):
    """Settings in which answers wait for forecasters, however busy this machine is."""
    monkeypatch.setattr(link_forecasters, "PATIENCE", 600.0)


async def user(broker, subject, role="transfer", site="FNAL"):
    issued = await broker.factory.tokens.issue("tests", NewToken(subject=subject, role=role, site=site))
    return broker.with_headers({"Authorization": f"Bearer {issued.token}"})


def transfers(host, rate, count, *, ended=None, sink="FNAL"):
    """Return this many transfers from a server, at a rate in MB/s, an hour apart; the last one ended an hour ago."""
    last = time.time() - 3600 if ended is None else ended
    return [
        {
            "id": f"{host}-{rate}-{i}-{last}",
            "source": host,
            "sink": sink,
            "started": last - 3600 * i - 100.0,
            "ended": last - 3600 * i,
            "bytes": int(rate * 100 * MB),
        }
        for i in range(count)
    ]


async def ranked(client, name=A):
    answer = await client.post(RESOLVE, json={"names": [name], "sink": "FNAL"})
    found, _ = (json.loads(line) for line in answer.text.splitlines())
    return [replica["endpoint"] for replica in found["replicas"]]


async def cern(client):
    """Return which of the two servers at CERN comes first."""
    return [endpoint for endpoint in await ranked(client) if endpoint != "fnal-1"]


async def report(client, rows):
    answer = await client.post(T, json=rows)
    assert answer.status_code == 200, answer.text


@pytest.fixture
async def world(broker, stocked):
    """Reports of honest users: cern-1 is fast, cern-2 is slow, fnal-1 is in between."""
    for name in ("ann", "bob"):
        client = await user(broker, name)
        rates = {"cern-1": 100, "fnal-1": 30, "cern-2": 5}
        await report(client, [row for host, rate in rates.items() for row in transfers(host, rate, 10)])
    await broker.settled()
    return await user(broker, "reader", "reader")


async def test_reports_of_one_subject_do_not_change_the_ranking(broker, world):
    assert await ranked(world) == ["cern-1", "fnal-1", "cern-2"]
    mallory = await user(broker, "mallory")
    now = time.time()
    await report(mallory, transfers("cern-2", 5000, 320, ended=now))
    await report(mallory, transfers("cern-1", 0.001, 320, ended=now))
    await broker.settled()
    assert await ranked(world) == ["cern-1", "fnal-1", "cern-2"]
    for name in ("ann", "bob"):
        assert await ranked(await user(broker, name)) == ["cern-1", "fnal-1", "cern-2"]


async def test_ones_own_transfers_count_for_oneself(broker, world):
    other = await user(broker, "far-away")
    await report(other, transfers("cern-2", 5000, OWN))
    await broker.settled()
    assert (await ranked(other))[0] == "cern-2"
    assert await ranked(world) == ["cern-1", "fnal-1", "cern-2"]


async def test_against_one_honest_subject_a_second_one_has_no_majority(broker, stocked):
    ann, mallory = await user(broker, "ann"), await user(broker, "mallory")
    rates = {"cern-1": 100, "fnal-1": 30, "cern-2": 5}
    await report(ann, [row for host, rate in rates.items() for row in transfers(host, rate, 3)])
    await broker.settled()
    await report(mallory, transfers("cern-2", 5000, 320, ended=time.time()))
    await broker.settled()
    assert await ranked(await user(broker, "reader", "reader")) == ["cern-1", "fnal-1", "cern-2"]


async def test_one_subject_does_not_rank_the_replicas_of_an_unused_pair(broker, world):
    mallory = await user(broker, "mallory")
    await report(mallory, transfers("cern-2", 5000, 320, ended=time.time(), sink="ELSEWHERE"))
    await broker.settled()
    answer = await world.post(RESOLVE, json={"names": [A], "sink": "NOWHERE"})
    found, _ = (json.loads(line) for line in answer.text.splitlines())
    assert [replica["endpoint"] for replica in found["replicas"]][-1] == "cern-2"


async def test_a_transfer_that_ends_in_the_future_counts_as_ending_now(broker, stocked, admin):
    ann = await user(broker, "ann")
    now = time.time()
    row = {"id": "x", "source": "cern-1", "sink": "FNAL", "bytes": 100 * MB}
    await report(ann, [{**row, "started": now + 3000, "ended": now + 3010}])
    await report(ann, [{**row, "id": "y", "started": now - 5, "ended": now + 3000, "busy_seconds": 4.0}])
    kept = (await admin.get(T)).json()["transfers"]
    assert all(now <= each["ended"] <= time.time() for each in kept)
    assert all(each["started"] < each["ended"] for each in kept)
    assert sorted(each["busy_seconds"] for each in kept) == [4.0, 10.0]
    answer = await ann.post(T, json=[{**row, "id": "z", "started": now, "ended": now + 7200}])
    assert answer.status_code == 422


async def test_reports_of_ignored_subjects_count_for_nothing(broker, stocked, admin):
    mallory = await user(broker, "mallory")
    rates = {"cern-1": 0.01, "cern-2": 5000}
    await report(mallory, [row for host, rate in rates.items() for row in transfers(host, rate, 20)])
    await broker.settled()
    ann = await user(broker, "ann")
    await report(ann, transfers("cern-1", 100, 5) + transfers("cern-2", 5, 5))
    await broker.settled()
    reader = await user(broker, "reader", "reader")
    assert await cern(reader) == ["cern-2", "cern-1"]  # of two subjects, the first one counts
    assert (await admin.put("/broker/v1/ignored-subjects", json={"subject": "mallory"})).status_code == 200
    await broker.settled()
    await ranked(reader)
    await broker.settled()
    assert await cern(reader) == ["cern-1", "cern-2"]
    (ignored,) = (await admin.get("/broker/v1/ignored-subjects")).json()["subjects"]
    assert (ignored["subject"], ignored["by"]) == ("mallory", "a-admin")
    assert (await admin.delete("/broker/v1/ignored-subjects", params={"subject": "mallory"})).status_code == 204
    assert (await admin.delete("/broker/v1/ignored-subjects", params={"subject": "mallory"})).status_code == 404
    await broker.settled()
    await ranked(reader)
    await broker.settled()
    assert await cern(reader) == ["cern-2", "cern-1"]
    actions = [each["action"] for each in (await admin.get("/broker/v1/audit")).json()["entries"]]
    assert {"ignore subject", "stop ignoring subject"} <= set(actions)


@pytest.mark.parametrize("role", ["reader", "transfer", "curator"])
async def test_only_admins_ignore_subjects(broker, stocked, role):
    client = await broker.client(role)
    assert (await client.get("/broker/v1/ignored-subjects")).status_code == 403
    assert (await client.put("/broker/v1/ignored-subjects", json={"subject": "ann"})).status_code == 403
    assert (await client.delete("/broker/v1/ignored-subjects", params={"subject": "ann"})).status_code == 403


def test_a_command_adds_lists_and_removes_ignored_subjects(tmp_path):
    database = f"sqlite:///{tmp_path / 'broker.sqlite'}"
    upgrade(addressed(database))

    def run(*words):
        return CliRunner().invoke(command, ["ignored", *words, "--database", database])

    assert run("add", "mallory").exit_code == 0
    assert run("list").output.endswith("  mallory  by coget-broker\n")
    assert run("remove", "mallory").exit_code == 0
    assert run("list").output == ""
    assert "the reports of mallory are not ignored" in str(run("remove", "mallory").exception)


# Replicas


async def states(client, name=A):
    return {
        each["endpoint"]: each["state"] for each in (await client.get(f"/broker/v1/datasets/{name}")).json()["replicas"]
    }


async def mark(client, endpoint, name=A):
    answer = await client.post(BAD, json={"dataset": name, "endpoint": endpoint, "reason": "wrong"})
    assert answer.status_code == 200
    return answer.json()["state"]


async def test_the_last_replica_is_only_suspected_and_still_handed_out(broker, stocked):
    mallory = await user(broker, "mallory")
    assert [await mark(mallory, name) for name in ("cern-1", "fnal-1", "cern-2")] == ["BAD", "BAD", "SUSPICIOUS"]
    assert [await mark(mallory, name) for name in ("cern-1", "fnal-1", "cern-2")] == ["BAD", "BAD", "SUSPICIOUS"]
    assert await mark(await user(broker, "bob"), "cern-2") == "SUSPICIOUS"
    answer = await stocked.post(RESOLVE, json={"names": [A]})
    (replica,) = json.loads(answer.text.splitlines()[0])["replicas"]
    assert (replica["endpoint"], "reported as bad" in replica["rationale"]) == ("cern-2", True)
    listed = (await stocked.get("/broker/v1/replicas", params={"state": "SUSPICIOUS"})).json()["replicas"]
    assert [(each["endpoint"], each["reason"]) for each in listed] == [("cern-2", "mallory: wrong")]


async def test_a_replica_that_is_not_read_from_is_none_that_is_left(broker, stocked):
    for name in ("cern-1", "fnal-1"):
        endpoint = (await stocked.get(f"/broker/v1/endpoints/{name}")).json()
        changed = {**endpoint, "read_priority": 0}
        assert (await stocked.put(f"/broker/v1/endpoints/{name}", json=changed)).status_code == 200
    assert await mark(await user(broker, "mallory"), "cern-2") == "SUSPICIOUS"


async def test_a_suspected_replica_comes_last(broker, world, stocked):
    await stocked.put("/broker/v1/replicas", json={"dataset": A, "endpoint": "cern-1"})  # a curator has checked it
    mallory = await user(broker, "mallory")
    assert await mark(mallory, "cern-1") == "AVAILABLE"
    assert await mark(await user(broker, "bob"), "cern-1") == "SUSPICIOUS"
    assert await ranked(world) == ["fnal-1", "cern-2", "cern-1"]


@pytest.mark.parametrize("state", ["AVAILABLE", "BAD", "TEMPORARY_UNAVAILABLE", "UNAVAILABLE", "BEING_DELETED"])
async def test_the_state_set_by_a_curator_stands(broker, stocked, state):
    body = {"dataset": A, "endpoint": "cern-1", "state": state, "reason": "I have looked"}
    curator = await broker.client("curator")
    assert (await curator.put("/broker/v1/replicas", json=body)).status_code == 200
    assert await mark(await user(broker, "mallory"), "cern-1") == state
    replicas = (await stocked.get(f"/broker/v1/datasets/{A}")).json()["replicas"]
    (kept,) = [each for each in replicas if each["endpoint"] == "cern-1"]
    assert (kept["state"], kept["reason"]) == (state, "I have looked")


async def test_the_state_set_by_an_import_stands(broker, stocked):
    line = {"name": A, "replicas": [{"endpoint": "cern-1", "state": "BAD", "reason": "disk lost"}]}
    await stocked.post("/broker/v1/import", content=json.dumps(line))
    mallory = await user(broker, "mallory")
    assert await mark(mallory, "cern-1") == "BAD"
    await stocked.put("/broker/v1/ignored-subjects", json={"subject": "mallory"})
    assert (await states(stocked))["cern-1"] == "BAD"


async def test_a_curator_answers_what_was_reported(broker, stocked):
    await mark(await user(broker, "ann"), "cern-1")
    await stocked.put("/broker/v1/replicas", json={"dataset": A, "endpoint": "cern-1"})
    assert await mark(await user(broker, "bob"), "cern-1") == "AVAILABLE"  # the first after the curator's decision


async def test_ignoring_a_subject_undoes_its_reports_until_it_is_lifted(broker, stocked):
    mallory, ann = await user(broker, "mallory"), await user(broker, "ann")
    for name in ("cern-1", "fnal-1"):
        await mark(mallory, name)
    await mark(ann, "fnal-1")
    before = {"cern-1": "BAD", "fnal-1": "BAD", "cern-2": "AVAILABLE"}
    assert await states(stocked) == before
    await stocked.put("/broker/v1/ignored-subjects", json={"subject": "mallory"})
    assert await states(stocked) == {**before, "cern-1": "AVAILABLE"}
    assert await mark(mallory, "cern-1") == "AVAILABLE"
    assert await mark(mallory, "cern-2") == "AVAILABLE"
    await stocked.delete("/broker/v1/ignored-subjects", params={"subject": "mallory"})
    after = await states(stocked)
    assert after["fnal-1"] == "BAD"
    assert sorted(after.values()) == ["BAD", "BAD", "SUSPICIOUS"]


async def test_two_reports_at_once_leave_one_replica(broker, stocked):
    import asyncio

    clients = [await user(broker, f"user{number}") for number in range(3)]
    names = ("cern-1", "fnal-1", "cern-2")
    await asyncio.gather(*(mark(client, name) for client, name in zip(clients, names, strict=True)))
    assert sorted((await states(stocked)).values()) == ["BAD", "BAD", "SUSPICIOUS"]


STATES = ["AVAILABLE", "SUSPICIOUS", "BAD", "UNAVAILABLE", "COPYING", "BEING_DELETED", "TEMPORARY_UNAVAILABLE"]


@pytest.mark.parametrize("judged", [False, True])
@pytest.mark.parametrize("state", STATES)
def test_no_single_subject_takes_the_last_one_away(state, judged):
    one = ReplicaStanding(1, 1, state, judged, True, True, [("ann", "wrong")])
    after = changed_states([one]).get(one.key, state)
    assert after == state or after in ("AVAILABLE", "SUSPICIOUS")


def test_one_of_many_replicas_reported_as_bad_is_left():
    all_of_them = [ReplicaStanding(1, i, "AVAILABLE", False, True, True, [("ann", "wrong")]) for i in range(5)]
    assert sorted(changed_states(all_of_them).values()) == ["BAD"] * 4 + ["SUSPICIOUS"]


async def test_a_broker_that_starts_reads_reports_of_every_user(broker, world, monkeypatch):
    """The result does not depend on how many transfers one user adds."""
    monkeypatch.setattr(all_links, "PAGE", 75)  # of 160; for ann and bob all but cern-1
    mallory = await user(broker, "mallory")
    await report(mallory, transfers("cern-2", 5000, 100, ended=time.time(), sink="ELSEWHERE"))
    async with running(Settings(broker.factory.settings.database)) as started:
        await started.settled()
        reader = started.with_headers(dict(world.headers))
        answer = await reader.post(RESOLVE, json={"names": [A], "sink": "NOWHERE"})
    found, _ = (json.loads(line) for line in answer.text.splitlines())
    (slow,) = [replica for replica in found["replicas"] if replica["endpoint"] == "cern-2"]
    assert slow["rate"]["p50"] < 30 * MB


async def test_many_subjects_of_a_pair_are_heard_in_bounded_memory(broker, stocked):
    for number in range(MOST + 4):
        await report(await user(broker, f"user-{number}"), transfers("cern-1", 100 + number, 3))
        await broker.settled()
    reader = await user(broker, "reader", "reader")
    await ranked(reader)
    await broker.settled()
    (cached,) = [cached for cached in broker.factory.forecasting._links._cached.values() if cached.forecaster]
    assert len(cached.forecaster) == MOST


def forecast_of(rate):
    return Forecast("x", None if rate is None else Rates(rate / 2, rate, rate * 2), None, 1, 1.0, "seen")


@pytest.mark.parametrize(
    ("rates", "middle"),
    [([5], 5), ([5, 9000], 5), ([9000, 5], 9000), ([5, 9000, 6], 6), ([5, 6, 0.001, 9000], 5), ([None, 5, None], 5)],
)
def test_the_middle_of_forecasts_is_their_median(rates, middle):
    found = middle_of([forecast_of(rate) for rate in rates])
    assert found is not None
    assert found.rates.p50 == middle


def test_the_middle_of_no_forecasts_is_none():
    assert middle_of([]) is None
    assert middle_of([forecast_of(None)]) is None
