"""Reported decisions: stored once, evaluated, listed, and visible only to their owners."""

import time

import pytest

from broker.errors import NotFound
from broker.models.callers import Caller
from broker.storage.decisions import WEEK, DecisionFilter, DecisionStore

MB = 1_000_000
AT = time.time() - 1000
ROOT, ANN = Caller(subject="root", role="admin"), Caller(subject="a-transfer", role="transfer")


def part(name: str, count: int, seconds: float, planned: int | None = None, **more: object) -> dict:
    """Return a candidate that delivered this many bytes in this many seconds, from the first second on."""
    return {
        "source": f"ftp://{name}.example",
        "url": f"ftp://{name}.example/x.root",
        "rate": {"p10": 1.0 * MB, "p50": 5.0 * MB, "p90": 9.0 * MB},
        "planned_bytes": planned,
        "bytes": count,
        "seconds": seconds + 0.1,
        "setup_seconds": 0.1,
        "start_seconds": 1.0,
        "flow_seconds": seconds,
        "outcome": "ok",
        **more,
    }


def decided(key: str = "d1", **more: object) -> dict:
    """Return a decision with 60 MB from one source and 40 MB from another, in 10 s; half was planned for each."""
    return {
        "id": key,
        "at": AT,
        "kind": "download",
        "thing": "run1:x.root",
        "sink": "HERE",
        "bytes": 100 * MB,
        "moved": 100 * MB,
        "strategy": "adaptive",
        "rationale": "adaptive: shares by set-up and rate",
        "outcome": "ok",
        "seconds": 12.0,
        "fetch_seconds": 11.5,
        "sources": [part("a", 60 * MB, 10.0, 50 * MB), part("b", 40 * MB, 10.0, 50 * MB)],
        "ranges": [
            {"source": 0, "start": 0, "end": 60 * MB, "bytes": 60 * MB, "asked": 0.9, "ending": "whole"},
            {"source": 1, "start": 60 * MB, "end": 100 * MB, "bytes": 40 * MB, "asked": 0.9, "ending": "shortened"},
        ],
        "range_count": 2,
        **more,
    }


async def listed(broker, **wanted: object):
    async with broker.factory.database.read() as connection:
        return (await DecisionStore(connection).page(DecisionFilter(**wanted), 100)).decisions


async def summed(broker, subject=None):
    async with broker.factory.database.read() as connection:
        return await DecisionStore(connection).summed(subject, 0)


async def test_a_decision_is_kept_once_and_judged(broker):
    client = await broker.client("transfer")
    for answer in ({"accepted": 1, "known": 0}, {"accepted": 0, "known": 1}):
        assert (await client.post("/broker/v1/decisions", json=decided())).json() == answer
    (only,) = await listed(broker)
    assert (only.subject, only.thing, only.best_seconds, only.unknown) == ("a-transfer", "run1:x.root", 11.0, 0)
    assert only.planned_seconds == pytest.approx(1 + 50 / 4)
    assert only.single_seconds == pytest.approx(1 + 100 / 6)
    kept = await broker.factory.decisions.one(ANN, only.id)
    assert [each.planned_bytes for each in kept.sources] == [50 * MB, 50 * MB]
    assert kept.shares == pytest.approx([60 * MB, 40 * MB])
    assert [(each.source, each.ending) for each in kept.ranges] == [(0, "whole"), (1, "shortened")]


async def test_the_costs_of_decisions_are_summed(broker):
    client = await broker.client("transfer")
    await client.post("/broker/v1/decisions", json=[decided(f"d{i}") for i in range(3)])
    sums = {each.source: each for each in await summed(broker, "a-transfer")}
    assert sorted(sums) == ["", "ftp://a.example", "ftp://b.example"]
    whole, slow = sums[""], sums["ftp://b.example"]
    assert (whole.decisions, whole.planned, whole.bytes, whole.week) == (3, 3, 300 * MB, int(AT // WEEK))
    assert whole.prediction_seconds == pytest.approx(3 * 2.5)
    assert whole.scheme_seconds == pytest.approx(3 * -2.0)
    assert slow.prediction_seconds == pytest.approx(3 * 2.5)
    assert sums["ftp://a.example"].prediction_seconds == 0
    assert (slow.bytes, slow.planned_bytes, slow.best_bytes) == (120 * MB, 150 * MB, pytest.approx(120 * MB))
    assert await summed(broker, "bob") == []


async def test_a_failed_decision_has_no_regret(broker):
    client = await broker.client("transfer")
    failed = decided(outcome="failed", error="no source is left")
    assert (await client.post("/broker/v1/decisions", json=failed)).status_code == 200
    (only,) = await listed(broker)
    assert (only.outcome, only.error, only.best_seconds) == ("failed", "no source is left", None)
    assert await summed(broker) == []


async def test_an_unused_candidate_counts_as_it_did_at_about_that_time(broker):
    client = await broker.client("transfer")
    unused = part("c", 0, 0.0, 0, outcome="unused", start_seconds=None, setup_seconds=None)
    sources = [*decided()["sources"], unused]
    await client.post("/broker/v1/decisions", json=decided("before", sources=sources))
    seen = {"id": "t", "source": "ftp://c.example", "sink": "HERE", "started": AT - 50, "ended": AT - 40}
    await client.post("/broker/v1/transfers", json={**seen, "bytes": 100 * MB})
    await client.post("/broker/v1/decisions", json=decided("after", sources=sources))
    after, before = await listed(broker)
    assert (before.unknown, before.best_seconds) == (1, 11.0)
    assert (after.unknown, after.best_seconds) == (0, pytest.approx(6.0))
    kept = await broker.factory.decisions.one(ROOT, after.id)
    assert kept.shares == pytest.approx([30 * MB, 20 * MB, 50 * MB])


async def test_transfers_of_ignored_subjects_do_not_rate_an_unused_candidate(broker, admin):
    client, liar = await broker.client("transfer"), await broker.client("curator")
    unused = part("c", 0, 0.0, 0, outcome="unused", start_seconds=None, setup_seconds=None)
    seen = {"id": "t", "source": "ftp://c.example", "sink": "HERE", "started": AT - 50, "ended": AT - 40}
    await liar.post("/broker/v1/transfers", json={**seen, "bytes": 100 * MB})
    assert (await admin.put("/broker/v1/ignored-subjects", json={"subject": "a-curator"})).status_code == 200
    await client.post("/broker/v1/decisions", json=decided(sources=[*decided()["sources"], unused]))
    (only,) = await listed(broker)
    assert (only.unknown, only.best_seconds) == (1, 11.0)


async def test_decisions_of_other_users_are_not_found(broker):
    client = await broker.client("transfer")
    await client.post("/broker/v1/decisions", json=decided())
    (only,) = await listed(broker)
    assert (await broker.factory.decisions.one(ROOT, only.id)).listed == only
    messages = []
    for number in (only.id, only.id + 1):
        with pytest.raises(NotFound) as refused:
            await broker.factory.decisions.one(Caller(subject="bob", role="curator"), number)
        messages.append(refused.value.message.replace(str(number), "N"))
    assert messages[0] == messages[1]
    assert await listed(broker, subject="bob") == []


async def test_decisions_are_found_by_their_rationale_and_sources(broker):
    client = await broker.client("transfer")
    for i, why in enumerate(("100%_sure", "100 x sure", 'C:\\x "quoted"', "<script>alert(1)</script>")):
        report = await client.post("/broker/v1/decisions", json=decided(f"d{i}", at=AT + i, rationale=why))
        assert report.status_code == 200
    found = {
        text: [each.rationale for each in await listed(broker, text=text)]
        for text in ("SURE", "100%_", "c:\\", '"Quoted"', "<SCRIPT>", "a.example", "nothing")
    }
    assert found == {
        "SURE": ["100 x sure", "100%_sure"],
        "100%_": ["100%_sure"],
        "c:\\": ['C:\\x "quoted"'],
        '"Quoted"': ['C:\\x "quoted"'],
        "<SCRIPT>": ["<script>alert(1)</script>"],
        "a.example": ["<script>alert(1)</script>", 'C:\\x "quoted"', "100 x sure", "100%_sure"],
        "nothing": [],
    }


async def test_pages_go_on_where_the_one_before_ended(broker, monkeypatch):
    client = await broker.client("transfer")
    for i in range(7):
        await client.post("/broker/v1/decisions", json=decided(f"d{i}", at=AT + i // 2, thing=f"x{i % 2}"))
    monkeypatch.setattr("broker.storage.decisions.LOOKED", 3)
    for wanted in ({}, {"text": "X1"}, {"since": AT + 1, "until": AT + 3}):
        found, before, pages = [], None, 0
        while True:
            async with broker.factory.database.read() as connection:
                page = await DecisionStore(connection).page(DecisionFilter(before=before, **wanted), 2)
            found += page.decisions
            before, pages = page.next, pages + 1
            if before is None:
                break
        assert len(found) == {0: 7, 1: 3, 2: 4}[len(wanted)]
        assert found == sorted(found, key=lambda each: (-each.at, -each.id))
        assert pages <= 5


@pytest.mark.parametrize(
    "wrong",
    [
        {"ranges": [{"source": 2, "start": 0, "end": 1, "bytes": 1, "asked": 0}]},
        {"sources": []},
        {"sources": [part("a", 1, 1.0)] * 101},
        {"sources": [part("a b", 1, 1.0)]},
        {"moved": 101 * MB},
        {"thing": "two\nlines"},
        {"thing": "x" * 2001},
        {"strategy": "<b>"},
        {"sink": "../x"},
        {"at": time.time() + 10_000},
        {"seconds": -1},
        {"seconds": 1e10},
        {"task_id": "of-somebody-else"},
        {"ranges": [{"source": 0, "start": 0, "end": 1, "bytes": 1, "asked": 0}] * 2001},
    ],
    ids=lambda wrong: next(iter(wrong)),
)
async def test_invalid_decisions_are_refused(broker, wrong):
    client = await broker.client("transfer")
    answer = await client.post("/broker/v1/decisions", json=decided(**wrong))
    assert answer.status_code == 422, answer.text
    assert await listed(broker) == []


async def test_readers_report_nothing(broker):
    client = await broker.client("reader")
    assert (await client.post("/broker/v1/decisions", json=decided())).status_code == 403


async def test_old_decisions_are_forgotten_with_the_transfers(broker):
    client = await broker.client("transfer")
    await client.post("/broker/v1/decisions", json=[decided("old", at=1000.0), decided("new")])
    await broker.factory.transfers.forget(10 * WEEK)
    assert [each.at for each in await listed(broker)] == [AT]
    assert {each.week for each in await summed(broker)} == {int(AT // WEEK)}


async def test_numbers_beyond_all_sense_are_kept_and_break_nothing(broker):
    client, admin = await broker.client("transfer"), await broker.client("admin")
    most = 2**63 - 1
    fast = part("a", most, 1e-300, most)
    slow = part("b", 1, 9e8, 0, rate={"p50": 1e-300})
    for i, sources in enumerate(([fast, slow], [slow, slow], [slow, {**fast, "flow_seconds": 9e8}])):
        body = decided(f"d{i}", bytes=most, moved=most, sources=sources)
        assert (await client.post("/broker/v1/decisions", json=body)).status_code == 200
    for name in ("decisions", "regret", "transfer?id=1", "transfer?id=2", "transfer?id=3"):
        assert (await admin.get(f"/broker/v1/reports/{name}")).status_code == 200
