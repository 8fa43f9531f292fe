"""The database cost of leases and results, from query plans."""

import time
from collections.abc import AsyncIterator
from uuid import uuid4

import pytest
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from broker.factory import Announcements
from broker.models.tasks import Item, NewTask
from broker.models.work import PlannedWork, WorkResult
from broker.services.tasks.tasks import Tasks
from broker.storage.database import Database, addressed
from broker.storage.work import WorkStore
from broker.storage.workers import WorkerStore

WAITING, LEASED, DONE = 30_000, 2000, 100
"""Planner settings for a small table, which PostgreSQL would otherwise read in full."""
ROWS = ("Actual Rows", "Rows Removed by Filter", "Rows Removed by Join Filter", "Rows Removed by Index Recheck")


@pytest.fixture
async def opened(database: str) -> AsyncIterator[Database]:
    database = Database(addressed(database))
    yield database
    await database.close()


async def test_results_are_written_row_by_row_however_much_is_leased(opened):
    """Results are not written by a scan over all leases of the worker."""
    ends = {"source": uuid4(), "destination": uuid4(), "items": (Item(source="/a", destination="/b"),)}
    new = NewTask(owner="ann", kind="TRANSFER", submission_id=uuid4(), deadline=time.time() + 3600, **ends)
    number, _ = await Tasks(opened, Announcements()).submit(new)
    planned = [PlannedWork("copy", f"/f{i}", f"/t{i}", 1) for i in range(WAITING)]
    async with opened.write() as connection:
        works, now = WorkStore(connection), time.time()
        await WorkerStore(connection).enrol("w", "", "here")
        await works.add(number, planned)
        await connection.exec_driver_sql("ANALYZE")
        leased = await works.lease(number, "w", ["copy"], True, LEASED, LEASED, now)
        assert len(leased) == LEASED
    seen = []
    sa.event.listen(opened._engine.sync_engine, "before_cursor_execute", lambda *said: seen.append(said[2:4]))
    async with opened.write() as connection:
        works = WorkStore(connection)
        await works.complete("w", [WorkResult(each, "succeeded") for each in leased[:DONE]], now)
        await works.release("w", {work.lease for work in leased[-DONE:]})
        written = [each for each in seen if each[0].startswith("UPDATE work")]
        assert len(written) == 2
        for statement, values in written:
            assert await looked_at(connection, statement, values) <= 10 * DONE, statement


async def looked_at(connection: AsyncConnection, statement: str, values: object) -> int:
    """Return the number of rows that a statement scans and joins in vain; on SQLite, whether it looks them up by id."""
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
