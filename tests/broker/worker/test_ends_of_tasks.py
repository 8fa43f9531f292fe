"""Ends of tasks while others add to their work, lease it or end them: no order leaves work behind."""

import asyncio
import time
from collections.abc import AsyncIterator

import pytest
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from broker.factory import Announcements
from broker.models.work import PlannedWork, WorkResult
from broker.schema.tasks import work
from broker.services.tasks.tasks import Tasks
from broker.storage.database import Database, addressed
from broker.storage.dialects import read_clock
from broker.storage.tasks import TaskStore as Stored
from broker.storage.work import WorkStore
from broker.storage.workers import WorkerStore
from broker.worker.periodic_checks import PeriodicChecks
from tests.broker.worker.test_work import ANN, task
from tests.support.waiting import until

FOUND = [PlannedWork("copy", f"/d/{i}", f"/to/d/{i}", 10) for i in range(3)]


@pytest.fixture
async def opened(database: str) -> AsyncIterator[Database]:
    opened = Database(addressed(database))
    yield opened
    await opened.close()


@pytest.fixture
async def other(database: str) -> AsyncIterator[Database]:
    """The same database, as if opened by another process."""
    other = Database(addressed(database))
    yield other
    await other.close()


async def waits(database: Database) -> None:
    """Return when a transaction waits for a lock; on SQLite, at once, as transactions wait for the whole file."""

    async def blocked() -> bool:
        async with database.read() as connection:
            return bool((await connection.execute(sa.text("SELECT count(*) FROM pg_locks WHERE NOT granted"))).scalar())

    if not database.sqlite:
        await until(blocked)


async def states(connection: AsyncConnection, number: str) -> dict[str, str]:
    rows = await connection.execute(sa.select(work.c.source, work.c.state).where(work.c.task_id == number))
    return dict(rows.all())


async def submitted(database: Database, *names: str, deadline: float = 3600.0) -> str:
    """Submit a task, and register a worker that may lease its work."""
    new = task(*names).model_copy(update={"deadline": time.time() + deadline})
    number, _ = await Tasks(database, Announcements()).submit(new)
    async with database.write() as connection:
        await WorkerStore(connection).enrol("w", "", "here")
    return number


async def test_work_added_by_a_walk_ends_with_its_task(opened, other):
    number = await submitted(opened, "/d")
    async with opened.write() as connection:
        assert await WorkStore(connection).add(number, FOUND) == len(FOUND)
        ending = asyncio.create_task(Tasks(other, Announcements()).cancel(ANN, number))
        await waits(opened)
    assert await ending
    async with opened.read() as connection:
        assert await states(connection, number) == {"/d": "canceled", **{each.source: "canceled" for each in FOUND}}
    known = await Tasks(opened, Announcements()).one(ANN, number)
    assert (known.canceled_work, known.pending) == (1 + len(FOUND), 0)


async def test_a_walk_adds_nothing_to_a_task_that_ends(opened, other):
    number = await submitted(opened, "/d")

    async def walk() -> int:
        async with other.write() as connection:
            return await WorkStore(connection).add(number, FOUND)

    async with opened.write() as connection:
        assert await Stored(connection).end(number, time.time(), "CANCELED", "canceled", "canceled")
        walking = asyncio.create_task(walk())
        await waits(opened)
    assert await walking == 0
    async with opened.read() as connection:
        assert await states(connection, number) == {"/d": "canceled"}


async def test_leased_work_ends_with_its_task(opened, other):
    number = await submitted(opened, "/a")
    async with opened.write() as connection:
        (leased,) = await WorkStore(connection).lease(number, "w", ["look"], True, 10, 10, time.time())
        ending = asyncio.create_task(Tasks(other, Announcements()).cancel(ANN, number))
        await waits(opened)
    assert await ending
    async with opened.write() as connection:
        assert await states(connection, number) == {"/a": "canceled"}
        assert await WorkStore(connection).complete("w", [WorkResult(leased, "succeeded")], time.time()) == set()


async def test_no_work_of_an_ending_task_is_leased(opened, other):
    number = await submitted(opened, "/a")

    async def lease() -> list[object]:
        async with other.write() as connection:
            return list(await WorkStore(connection).lease(number, "w", ["look"], True, 10, 10, time.time()))

    async with opened.write() as connection:
        assert await Stored(connection).end(number, time.time(), "CANCELED", "canceled", "canceled")
        leasing = asyncio.create_task(lease())
        await waits(opened)
    assert await leasing == []


async def test_results_and_an_end_that_meet_do_not_wait_in_a_circle(opened, other):
    """Transactions that record results lock the task before its work, like those that end it."""
    number = await submitted(opened, "/a", "/b")
    async with opened.write() as connection:
        leased = await WorkStore(connection).lease(number, "w", ["look"], True, 10, 10, time.time())
    async with opened.write() as connection:
        works = WorkStore(connection)
        await works.lock({number})
        assert len(await works.complete("w", [WorkResult(leased[0], "succeeded")], time.time())) == 1
        ending = asyncio.create_task(Tasks(other, Announcements()).cancel(ANN, number))
        await waits(opened)
        assert len(await works.complete("w", [WorkResult(leased[1], "succeeded")], time.time())) == 1
        assert await Stored(connection).finish({number}, time.time())
    assert not await ending
    assert (await Tasks(opened, Announcements()).one(ANN, number)).status == "SUCCEEDED"


async def test_a_worker_that_was_taken_for_dead_leases_nothing(opened, other):
    """Leases of a worker that counts as dead would never be freed."""
    number = await submitted(opened, "/a")

    async def lease() -> list[object]:
        async with other.write() as connection:
            return list(await WorkStore(connection).lease(number, "w", ["look"], True, 10, 10, time.time()))

    async with opened.write() as connection:
        await WorkerStore(connection).remove(["w"], died=True)
        leasing = asyncio.create_task(lease())
        await waits(opened)
    assert await leasing == []


async def test_a_worker_that_leases_just_now_is_not_dead(opened, other):
    number = await submitted(opened, "/a")
    async with opened.write() as connection:
        await connection.execute(sa.text("UPDATE workers SET seen_at = 0"))
    async with opened.write() as connection:
        (leased,) = await WorkStore(connection).lease(number, "w", ["look"], True, 10, 10, time.time())
        freeing = asyncio.create_task(PeriodicChecks(other)._free_leases_of("other"))
        if not opened.sqlite:
            await freeing
    await freeing
    async with opened.read() as connection:
        left = await WorkStore(connection).leased("w")
        assert left == (set() if opened.sqlite else {leased.lease})


async def test_one_of_several_expiry_checks_ends_the_task(opened, other):
    number = await submitted(opened, "/a", deadline=-1.0)
    async with opened.write() as connection:
        assert await Stored(connection).expired(await read_clock(connection)) == [number]
    await asyncio.gather(*(PeriodicChecks(each)._expire(number) for each in (opened, other, opened)))
    found, count = await Tasks(opened, Announcements()).events(ANN, number, None, 10, 0)
    assert ([event.code for event in found], count) == (["EXPIRED"], 1)
    known = await Tasks(opened, Announcements()).one(ANN, number)
    assert (known.error_code, known.expired) == ("EXPIRED", 1)


async def test_a_deadline_that_was_moved_meanwhile_ends_nothing(opened):
    number = await submitted(opened, "/a", deadline=-1.0)
    await Tasks(opened, Announcements()).change(ANN, number, None, time.time() + 3600)
    await PeriodicChecks(opened)._expire(number)
    assert (await Tasks(opened, Announcements()).one(ANN, number)).status == "ACTIVE"


async def test_one_of_two_cancellations_ends_the_task(opened, other):
    number = await submitted(opened, "/a")
    done = await asyncio.gather(
        Tasks(opened, Announcements()).cancel(ANN, number), Tasks(other, Announcements()).cancel(ANN, number)
    )
    _, count = await Tasks(opened, Announcements()).events(ANN, number, None, 10, 0)
    assert (sorted(done), count) == ([False, True], 1)
