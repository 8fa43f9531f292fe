"""The report on replicas: those that the broker does not offer, and why."""

import time

import pytest

from broker.jobs.following import Rolling

NOW = time.time()
DATASET = "run1:2024/a.root"


async def _report(client, source: str, outcomes: list[str], sent: str) -> None:
    for number, outcome in enumerate(outcomes):
        moved = {"id": f"{sent}{number}", "source": source, "sink": "FNAL", "bytes": 10**6, "outcome": outcome}
        times = {"started": NOW - 100 - number, "ended": NOW - 90 - number}
        error = {} if outcome == "ok" else {"error": f"{outcome} {number}"}
        answer = await client.post("/broker/v1/transfers", json={**moved, **times, **error})
        assert answer.json() == {"accepted": 1, "known": 0}


def _rows(document: dict, name: str) -> list[dict]:
    (table,) = [table for table in document["tables"] if table["name"] == name]
    names = [column["name"] for column in table["columns"]]
    return [dict(zip(names, row, strict=True)) for row in table["rows"]]


async def test_a_bad_replica_is_shown_with_the_evidence(broker, stocked):
    curator, began = await broker.client("curator"), time.time()
    bad = {"dataset": DATASET, "endpoint": "cern-1", "reason": "other bytes"}
    assert (await curator.post("/broker/v1/replicas/bad", json=bad)).status_code == 200
    gone = {"dataset": DATASET, "endpoint": "fnal-1", "state": "TEMPORARY_UNAVAILABLE", "reason": "a disk"}
    assert (await curator.put("/broker/v1/replicas", json=gone)).status_code == 200
    await _report(curator, "cern-1", ["ok"] * 6 + ["corrupt"] * 2 + ["failed"], "a")
    while await Rolling(broker.factory.database).step():
        pass
    reply = (await stocked.get("/broker/v1/reports/replicas")).json()
    replicas = {row["endpoint"]: row for row in _rows(reply, "replicas")}
    assert set(replicas) == {"cern-1", "fnal-1"}
    cern = replicas["cern-1"]
    assert (cern["dataset"], cern["site"], cern["state"]) == (DATASET, "CERN", "BAD")
    assert (cern["badly"], cern["corrupt"]) == (3, 2)
    assert "other bytes" in cern["reason"]
    assert began <= cern["since"] <= time.time()
    assert (replicas["fnal-1"]["badly"], replicas["fnal-1"]["error"]) == (0, "")
    (worst,) = _rows(reply, "endpoints")
    assert (worst["endpoint"], worst["transfers"], worst["badly"], worst["corrupt"]) == ("cern-1", 9, 3, 2)
    assert worst["share"] == pytest.approx(3 / 9)
    assert {fact["label"]: fact["value"] for fact in reply["facts"]}["Bad replicas"] == 1


async def test_replicas_are_found_by_their_state(broker, stocked):
    bad = {"dataset": DATASET, "endpoint": "cern-1", "reason": "other bytes"}
    assert (await stocked.post("/broker/v1/replicas/bad", json=bad)).status_code == 200
    for state, number in (("BAD", 1), ("COPYING", 0)):
        reply = (await stocked.get("/broker/v1/reports/replicas", params={"state": state})).json()
        assert len(_rows(reply, "replicas")) == number
    assert (await stocked.get("/broker/v1/reports/replicas", params={"state": "AVAILABLE"})).status_code == 422


async def test_a_shortened_list_is_called_so_also_where_the_reader_may_not_see_all(broker, stocked, monkeypatch):
    monkeypatch.setattr("broker.reports.replicas.MOST", 3)
    collection = {"name": "tape", "endpoint": "cern-2"}
    assert (await stocked.put("/broker/v1/collections/tape", json=collection)).status_code == 200
    curator, reader = await broker.client("curator"), await broker.client("transfer")
    for number, endpoint in enumerate(("cern-1", "cern-1", "cern-2", "cern-1")):
        dataset = {"name": f"x:{number}", "size": 1}
        assert (await curator.put(f"/broker/v1/datasets/x:{number}", json=dataset)).status_code == 200
        replica = {"dataset": f"x:{number}", "endpoint": endpoint, "state": "UNAVAILABLE"}
        assert (await curator.put("/broker/v1/replicas", json=replica)).status_code == 200
    for client, shown in ((stocked, ["x:3", "x:2", "x:1"]), (reader, ["x:3", "x:1"])):
        document = (await client.get("/broker/v1/reports/replicas")).json()
        assert [row["dataset"] for row in _rows(document, "replicas")] == shown
        (table,) = [table for table in document["tables"] if table["name"] == "replicas"]
        assert "GET /broker/v1/replicas has them all" in table["note"]


async def test_evidence_is_of_ones_own_transfers(broker, stocked):
    first, second = await broker.client("transfer"), await broker.client("curator")
    await _report(first, "cern-1", ["corrupt"] * 2, "a")
    await _report(second, "fnal-1", ["failed"] * 3, "b")
    for client, seen in ((first, {"cern-1"}), (second, {"fnal-1"}), (stocked, {"cern-1", "fnal-1"})):
        reply = (await client.get("/broker/v1/reports/replicas")).json()
        assert {row["endpoint"] for row in _rows(reply, "endpoints")} == seen


async def test_few_transfers_have_no_share(stocked):
    await _report(stocked, "cern-1", ["failed"], "a")
    (row,) = _rows((await stocked.get("/broker/v1/reports/replicas")).json(), "endpoints")
    assert row["share"] is None
