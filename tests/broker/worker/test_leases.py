"""A worker's leases, if the database fails during a transaction or before it confirms the commit.

The cost of leases and results is measured by the database's plans of the statements.
"""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import NamedTuple
from uuid import uuid4

import pytest
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from broker.errors import Unavailable
from broker.factory import Announcements
from broker.models.callers import Caller
from broker.models.lanes import CollectionPair, LaneCandidate
from broker.models.tasks import Item, NewTask, Options
from broker.models.work import PlannedWork, WorkResult
from broker.schema.tasks import work
from broker.services.auth.quotas import Quotas
from broker.services.forecasting.decisions import Decisions
from broker.services.forecasting.history import Transfers
from broker.services.network.places import Places
from broker.services.tasks.tasks import Tasks
from broker.storage.database import Database, addressed
from broker.storage.lanes import LaneStore
from broker.storage.work import WorkStore
from broker.storage.workers import WorkerStore
from broker.worker.leases import Leases
from broker.worker.recorder import Recorder
from coalloc.util.intervals import Intervals

ITEMS = 6
GONE = Unavailable("the database cannot be used now: it has gone", "try again in a moment")
WAITING, LEASED, DONE = 30_000, 2000, 100
"""Of a small table PostgreSQL reads all, whatever is asked."""
ROWS = ("Actual Rows", "Rows Removed by Filter", "Rows Removed by Join Filter", "Rows Removed by Index Recheck")


class Interrupted(Database):
    """A database that fails once, in a transaction that writes."""

    turns = -1
    kept = False

    @asynccontextmanager
    async def write(self) -> AsyncIterator[AsyncConnection]:
        self.turns -= 1
        goes = self.turns == 0
        async with super().write() as connection:
            yield connection
            if goes and not self.kept:
                raise GONE
        if goes:
            raise GONE


@pytest.fixture
async def opened(database: str) -> AsyncIterator[Interrupted]:
    opened = Interrupted(addressed(database))
    yield opened
    await opened.close()


class Working(NamedTuple):
    """A task of `ITEMS` work items, and the leases of a worker."""

    task: str
    leases: Leases
    recorder: Recorder


@pytest.fixture
async def working(opened: Interrupted) -> Working:
    items = tuple(Item(source=f"/{i}", destination=f"/to/{i}") for i in range(ITEMS))
    new = NewTask(
        owner="ann",
        kind="TRANSFER",
        submission_id=uuid4(),
        source=uuid4(),
        destination=uuid4(),
        deadline=time.time() + 3600,
        items=items,
    )
    number, _ = await Tasks(opened, Announcements()).submit(new)
    places = Places(opened)
    history = Transfers(opened, places, Quotas(10**6), Announcements())
    leases = Leases(opened, recorder := Recorder(opened, history, Decisions(opened, places), lambda *_: None))
    async with opened.write() as connection:
        await WorkerStore(connection).enrol("w", "", "here")
    leases.begin("w", time.monotonic())
    return Working(number, leases, recorder)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("kept", [False, True], ids=["undone", "kept"])
@pytest.mark.parametrize("turn", range(1, 9))
async def test_no_work_is_lost_or_done_by_two_whenever_the_database_goes(opened, working, turn, kept):
    number, leases, recorder = working
    busy: set[int] = set()
    opened.turns, opened.kept = turn, kept

    async def lane() -> None:
        for _ in range(3 * ITEMS):
            with suppress(Unavailable):
                batch = await leases.lease(number, [["look"]], True, 2)
                assert busy.isdisjoint(work.id for work in batch), "two lanes have the same work"
                busy.update(work.id for work in batch)
                await asyncio.sleep(0)
                for work in batch[:1]:
                    recorder.report(WorkResult(work, "succeeded"))
                busy.difference_update(work.id for work in batch)
                await leases.settle(batch)
            with suppress(Unavailable):  # as a worker does every few seconds
                await leases.settle(())
                await leases.reconcile()

    await asyncio.gather(lane(), lane())
    task = await Tasks(opened, Announcements()).one(Caller(subject="ann", role="transfer"), number)
    assert (task.status, task.succeeded) == ("SUCCEEDED", ITEMS)


async def test_results_lost_in_a_database_crash_are_produced_again(opened, working):
    """Acknowledged commits are lost, as in a PostgreSQL with `synchronous_commit` off."""
    number, leases, recorder = working
    first, other = await leases.lease(number, [["look"]], True, 2)
    recorder.report(WorkResult(first, "succeeded"))
    await leases.settle([first])
    async with opened.write() as connection:
        await connection.execute(
            sa.text("UPDATE work SET state = 'leased', worker = 'w' WHERE id = :id"), first._asdict()
        )
    await leases.reconcile()
    async with opened.read() as connection:
        assert await WorkStore(connection).leased("w") == {other.lease}, "what a lane is at is left to it"
    assert first.id in [work.id for work in await leases.lease(number, [["look"]], True, ITEMS)]


async def test_wrong_ranges_are_erased_with_the_result_of_their_attempt(opened, working):
    number, leases, recorder = working
    (first,) = await leases.lease(number, [["look"]], True, 1)
    recorder.progress(first, Intervals([(0, 100)]))
    await recorder.flush("w")
    recorder.progress(first, Intervals())  # the checksum was wrong
    recorder.report(WorkResult(first, "pending", error_code="VERIFY_CHECKSUM", error="the file is wrong"))
    await leases.settle([first])
    async with opened.read() as connection:
        (again,) = await WorkStore(connection).some(work.c.id == first.id)
    assert (again.error_code, again.received) == ("VERIFY_CHECKSUM", ())


async def test_a_worker_that_counts_as_dead_closes_no_lane_of_others(opened, working):
    candidate = LaneCandidate(working.task, "ann", CollectionPair("s", "t"), "TRANSFER", Options(), 0, 0.0, 0.0)
    async with opened.write() as connection:
        lanes, workers = LaneStore(connection), WorkerStore(connection)
        own = await lanes.add("w", candidate, time.time())
        await workers.remove(["w"], died=True)
        await workers.enrol("other", "", "there")
        other = await lanes.add("other", candidate, time.time())
        assert own < other
    await working.leases.settle((), own)
    await working.leases.settle((), other)
    async with opened.read() as connection:
        assert [each.task for each in await LaneStore(connection).open()] == [working.task]


@pytest.fixture
async def measured(database: str) -> AsyncIterator[Database]:
    made = Database(addressed(database))
    yield made
    await made.close()


async def test_results_are_written_row_by_row_for_any_number_of_leases(measured):
    """A statement reads only rows of the task, not all rows of the worker."""
    ends = {"source": uuid4(), "destination": uuid4(), "items": (Item(source="/a", destination="/b"),)}
    new = NewTask(owner="ann", kind="TRANSFER", submission_id=uuid4(), deadline=time.time() + 3600, **ends)
    number, _ = await Tasks(measured, Announcements()).submit(new)
    planned = [PlannedWork("copy", f"/f{i}", f"/t{i}", 1) for i in range(WAITING)]
    async with measured.write() as connection:
        works, now = WorkStore(connection), time.time()
        await WorkerStore(connection).enrol("w", "", "here")
        await works.add(number, planned)
        await connection.exec_driver_sql("ANALYZE")
        leased = await works.lease(number, "w", ["copy"], True, LEASED, LEASED, now)
        assert len(leased) == LEASED
    seen = []
    sa.event.listen(measured._engine.sync_engine, "before_cursor_execute", lambda *args: seen.append(args[2:4]))
    async with measured.write() as connection:
        works = WorkStore(connection)
        await works.complete("w", [WorkResult(each, "succeeded") for each in leased[:DONE]], now)
        await works.release("w", {work.lease for work in leased[-DONE:]})
        written = [each for each in seen if each[0].startswith("UPDATE work")]
        assert len(written) == 2
        for statement, values in written:
            assert await looked_at(connection, statement, values) <= 10 * DONE, statement


async def looked_at(connection: AsyncConnection, statement: str, values: object) -> int:
    """Return how many rows a statement reads, and joins in vain; on SQLite, whether it finds them by their ids."""
    if connection.dialect.name == "sqlite":
        plan = [row[-1] for row in await connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", values)]
        of_work = [step for step in plan if " work " in f"{step} "]
        assert of_work
        return 0 if all("USING INTEGER PRIMARY KEY" in step for step in of_work) else LEASED
    rows = await connection.exec_driver_sql(f"EXPLAIN (ANALYZE, FORMAT JSON) {statement}", values)
    steps, total = [rows.scalar_one()[0]["Plan"]], 0
    while steps:
        step = steps.pop()
        steps += step.get("Plans", [])
        total += step["Actual Loops"] * sum(step.get(name, 0) for name in ROWS)
    return total
