"""The overview: past transfers, running transfers, and problems."""

import csv
import io
import random
import time
from collections import Counter
from datetime import UTC, datetime
from uuid import uuid4

import pytest
import sqlalchemy as sa

from broker.models.history import Pair
from broker.models.tasks import Item, NewTask
from broker.models.work import PlannedWork
from broker.reports.archive import Scope
from broker.reports.overview import FEWEST_DOWNLOADS, OverviewQuery, gained, live, make
from broker.schema.reports import decisions
from broker.storage.tasks import TaskStore
from broker.storage.workers import WorkerStore
from tests.broker.reports.filling import DAY, TODAY, counted, fact, report, scored, table, transfer
from tests.broker.storage.test_rolling import history

ALL = Scope(None)
pytestmark = pytest.mark.usefixtures("noon", "unscored")


async def overview(broker, scope=ALL):
    await counted(broker.factory.database)
    return await make(broker.factory.archive, scope, OverviewQuery())


async def test_every_table_of_an_empty_broker_has_a_note(broker):
    shown = await overview(broker)
    assert (fact(shown, "Moved today").value, fact(shown, "Succeeded today").note) == (0, "none yet")
    assert fact(shown, "Succeeded this week").value is None
    assert "too few" in fact(shown, "Gain of several sources").note
    for each in shown.tables:
        assert (each.rows, bool(each.note)) == ([], True), each.name
    (figure,) = shown.figures
    assert (figure.spec, bool(figure.note), figure.table.rows) == ({}, True, [])


async def test_today_and_this_week_begin_at_midnight(broker, admin):
    now = time.time()
    ends = [now, TODAY, TODAY - 0.001, TODAY - 6 * DAY, TODAY - 6 * DAY - 0.001, TODAY - 27 * DAY, TODAY - 28 * DAY]
    await report(admin, [transfer(i, end, bytes=10**i) for i, end in enumerate(ends)])
    shown = await overview(broker)
    assert fact(shown, "Moved today").value == 11
    assert fact(shown, "Moved this week").value == 1111
    assert fact(shown, "Transfers this week").value == 4
    days = table(shown, "moved").records()
    assert len(days) == 28
    assert [each["bytes"] for each in days if each["bytes"]] == [100_000, 10_000, 1000, 100, 11]
    assert [days[0]["day"], days[-1]["day"]] == [TODAY - 27 * DAY, TODAY]
    assert shown.figures[0].spec


async def test_failing_pairs_are_shown_with_their_share_and_a_link(broker, admin):
    now = time.time()
    bad = [transfer(i, now - i, outcome="failed", error="no route <b>") for i in range(9)]
    good = [transfer(f"g{i}", now - i) for i in range(9)]
    few = [transfer(f"f{i}", now - i, source="ftp://few.example", outcome="corrupt") for i in range(9)]
    await report(admin, [*bad, *good, *few])
    shown = await overview(broker)
    assert fact(shown, "Succeeded today").value == pytest.approx(9 / 27)
    (worst,) = table(shown, "failing").records()
    assert (worst["source"], worst["failures"], worst["transfers"], worst["share"]) == ("ftp://a.example", 9, 18, 0.5)
    assert worst["address"] == "pair?source=ftp%3A%2F%2Fa.example&sink=B&direction=read"
    problems = table(shown, "problems").records()
    assert len(problems) == 10
    assert problems[0]["at"] == now
    assert {each["error"] for each in problems} == {"no route <b>", None}


async def test_forecasts_that_miss_most(broker):
    now, database = time.time(), broker.factory.database
    await scored(database, Pair("ftp://a.example", "B"), [now - i for i in range(10)], 3.0)
    await scored(database, Pair("ftp://b.example", "B"), [now - i for i in range(10)], 0.25)
    await scored(database, Pair("ftp://c.example", "B"), [now - i for i in range(9)], 9.0)
    await scored(database, Pair("ftp://d.example", "B"), [now - 8 * DAY - i for i in range(10)], 9.0)
    missed = table(await overview(broker), "missed").records()
    assert [(each["source"], each["off"]) for each in missed] == [("ftp://b.example", 4.0), ("ftp://a.example", 3.0)]


async def test_each_sees_what_is_theirs(broker, admin):
    other, now = await broker.client("transfer"), time.time()
    await report(admin, [transfer(i, now - i, outcome="failed") for i in range(20)])
    await report(other, [transfer(i, now - i, bytes=7) for i in range(10)])
    await scored(broker.factory.database, Pair("ftp://a.example", "B"), [now] * 10)
    await add_task(broker, "a-admin")
    mine = await overview(broker, Scope("a-transfer"))
    assert (fact(mine, "Moved this week").value, fact(mine, "Succeeded this week").value) == (70, 1.0)
    assert fact(mine, "Running tasks").value == 0
    for name in ("failing", "missed", "problems", "tasks"):
        assert table(mine, name).rows == [], name
    changing = await live(broker.factory.archive, Scope("a-transfer"))
    assert (fact(changing, "Moved today").value, fact(changing, "Running tasks").value) == (70, 0)
    everything = await overview(broker)
    assert fact(everything, "Transfers this week").value == 30
    assert [len(table(everything, name).rows) for name in ("failing", "missed", "tasks")] == [1, 1, 1]


async def add_task(broker, owner, **changed):
    new = NewTask(
        owner=owner,
        kind="TRANSFER",
        submission_id=uuid4(),
        source=uuid4(),
        destination=uuid4(),
        label="nightly <i>",
        deadline=time.time() + 1e5,
        items=(Item(source="/x"),),
    )
    async with broker.factory.database.write() as connection:
        number, _ = await TaskStore(connection).add(new, [PlannedWork("copy", "/x", "/x", 10**9)], time.time())
        if changed:
            await TaskStore(connection).change(number, **changed)
    return number


async def test_tasks_under_way_are_shown_as_they_go(broker, monkeypatch):
    clock = [1000.0]
    monkeypatch.setattr("broker.services.tasks.watching.time.monotonic", lambda: clock[0])
    number = await add_task(broker, "ann", paused="tape robot", bytes_transferred=10**8)
    first = await live(broker.factory.archive, ALL)
    (row,) = table(first, "tasks").records()
    assert (row["task"], row["address"], row["state"]) == ("nightly <i>", f"task?id={number}", "paused: tape robot")
    assert (row["bytes_done"], row["bytes"], row["rate"], row["seconds_left"]) == (10**8, 10**9, None, None)
    async with broker.factory.database.write() as connection:
        await WorkerStore(connection).enrol("w", "", "here")
        await TaskStore(connection).change(number, paused=None, started_at=time.time(), bytes_transferred=4 * 10**8)
    clock[0] += 3.0
    (row,) = table(await live(broker.factory.archive, ALL), "tasks").records()
    assert (row["state"], row["rate"], row["seconds_left"]) == ("under way", 1e8, 6.0)
    clock[0] += 3600.0
    (row,) = table(await live(broker.factory.archive, ALL), "tasks").records()
    assert (row["rate"], row["seconds_left"]) == (None, None)
    async with broker.factory.database.write() as connection:
        await TaskStore(connection).change(number, status="FAILED", completed_at=time.time(), error="disk full")
    shown = await overview(broker)
    assert table(shown, "tasks").note == "No task is running."
    (problem,) = table(shown, "problems").records()
    assert (problem["what"], problem["error"]) == ("task nightly <i>", "disk full")


async def test_the_gain_is_that_of_decisions_unless_they_are_few(broker):
    usual = {
        "kind": "download",
        "thing": "x",
        "sink": "B",
        "bytes": 1,
        "strategy": "adaptive",
        "rationale": "",
        "sources": "[]",
        "moved": 1,
        "unknown": 0,
        "seconds": 2.5,
    }
    now = time.time()

    async def decide(count, **more):
        made = {**usual, "at": now - 5, "subject": "ann", "outcome": "ok", **more}
        rows = [{**made, "key": uuid4().hex} for _ in range(count)]
        async with broker.factory.database.write() as connection:
            await connection.execute(sa.insert(decisions), rows)

    await decide(FEWEST_DOWNLOADS - 1, fetch_seconds=2.0, single_seconds=4.0)
    assert fact(await overview(broker), "Gain of several sources").value is None
    await decide(1, fetch_seconds=2.0, single_seconds=4.0)
    await decide(5, fetch_seconds=2.0, single_seconds=40.0, outcome="failed")
    await decide(5, fetch_seconds=2.0, single_seconds=None)
    await decide(5, fetch_seconds=2.0, single_seconds=40.0, at=now - 29 * DAY)
    shown = fact(await overview(broker), "Gain of several sources")
    assert (shown.value, shown.unit) == (2.0, "factor")
    assert shown.note.startswith(f"geometric mean of {FEWEST_DOWNLOADS} downloads")
    assert fact(await overview(broker, Scope("bob")), "Gain of several sources").value is None


def test_gains_and_losses_weigh_the_same():
    assert gained("g", [(1.0, 2.0), (2.0, 1.0)] * 10, 28).value == 1.0
    assert gained("g", [(1.0, 0.0), (0.0, 1.0)] * 10, 28).value is None


@pytest.mark.parametrize("seed", range(2))
async def test_all_figures_match_the_exported_rows(broker, admin, seed):
    other = await broker.client("transfer")
    for number, client in enumerate((admin, other)):
        await report(client, history(random.Random(10 * seed + number), 0, 150))
    text = (await admin.get("/broker/v1/transfers/export")).text
    for scope, rows in _by_scope(list(csv.DictReader(io.StringIO(text)))):
        shown = await overview(broker, scope)
        week = [row for row in rows if float(row["ended"]) >= TODAY - 6 * DAY]
        bad = [row for row in week if row["outcome"] in ("failed", "corrupt")]
        assert fact(shown, "Moved this week").value == sum(int(row["bytes"]) for row in week)
        assert fact(shown, "Transfers this week").value == len(week)
        assert fact(shown, "Succeeded this week").value == pytest.approx(1 - len(bad) / len(week))
        days = Counter(datetime.fromtimestamp(float(row["ended"]), UTC).date() for row in rows)
        counted = {datetime.fromtimestamp(day, UTC).date(): count for day, _, count, _ in table(shown, "moved").rows}
        assert {day: count for day, count in counted.items() if count} == days
        ways = Counter((row["source"], row["sink"], row["direction"]) for row in week)
        lost = Counter((row["source"], row["sink"], row["direction"]) for row in bad)
        shares = sorted((lost[way] / count for way, count in ways.items() if count >= 10 and lost[way]), reverse=True)
        assert [row["share"] for row in table(shown, "failing").records()] == pytest.approx(shares[:10])


def _by_scope(rows):
    return [(ALL, rows), (Scope("a-admin"), [row for row in rows if row["subject"] == "a-admin"])]
