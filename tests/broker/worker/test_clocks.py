"""Workers on hosts whose clocks differ by hours: the database's clock decides."""

import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from broker.background import WakeUps
from broker.models.tasks import Item
from broker.schema.collections import collections
from broker.storage.database import Database, addressed
from broker.storage.dialects import read_clock
from broker.storage.workers import WorkerStore as Enrolled
from broker.worker.periodic_checks import SILENCE
from broker.worker.rate_limits import RateReservations
from tests.broker.worlds import Servers, World, held, read, world_at, write
from tests.support.waiting import until
from tests.support.workers import Workers

APART = 7200.0
"""Clock offset in seconds; larger than a task's deadline."""
RATE = 2_000_000
ON_POSTGRESQL = pytest.mark.parametrize("database", ["postgresql"], indirect=True)


@pytest.fixture
def workers(database: str, tmp_path: Path) -> Iterator[Workers]:
    started = Workers(database, tmp_path)
    yield started
    started.close()


@pytest.fixture
async def world(servers: Servers, database: str, tmp_path: Path) -> AsyncIterator[World]:
    async with world_at(servers, database, tmp_path) as world, WakeUps(world.factory.database.url) as wake_ups:
        world.factory.new_work.subscribe(wake_ups.ring)
        yield world


@pytest.fixture
async def opened(database: str) -> AsyncIterator[Database]:
    opened = Database(addressed(database))
    yield opened
    await opened.close()


@ON_POSTGRESQL
async def test_workers_whose_clocks_differ_share_a_task_and_a_rate(world, workers):
    """No worker takes another for dead, the task does not expire, and failed work is retried soon."""
    files = write(world.source.root, {f"d/f{i}": RATE // 50 for i in range(100)})
    await held(world, "source", rate=RATE)
    for ahead in (APART, -APART):
        workers.start(ahead=ahead)
    await until(lambda: enrolled(world, 2))
    items = [Item(source="/d/", destination="/d/", recursive=True), Item(source="/none", destination="/none")]
    task = await world.over(await world.submit("TRANSFER", items))
    assert (task.error_code, task.succeeded) == ("FILE_NOT_FOUND", len(files) + 2), workers.said()
    assert read(world.sink.root) == files
    assert "dead" not in workers.said()
    async with world.factory.database.read() as connection:
        rows = await connection.execute(
            sa.text("SELECT kind, source = '/none', max(attempt), max(lost) FROM work GROUP BY 1, 2")
        )
        assert {tuple(row) for row in rows} == {
            ("look", False, 1, 0),
            ("expand", False, 1, 0),
            ("copy", False, 1, 0),
            ("look", True, 3, 0),
        }
    assert abs((task.completed_at or 0.0) - time.time()) < APART / 2


async def enrolled(world: World, count: int) -> bool:
    async with world.factory.database.read() as connection:
        return (await connection.execute(sa.text("SELECT count(*) FROM workers"))).scalar_one() == count


async def silent(connection: AsyncConnection, seconds: float) -> None:
    now = await read_clock(connection)
    await connection.execute(sa.text("UPDATE workers SET seen_at = :at"), {"at": now - seconds})


@ON_POSTGRESQL
@pytest.mark.parametrize("ahead", [APART, -APART])
async def test_a_host_whose_clock_is_wrong_writes_the_database_s_time(opened, world, monkeypatch, ahead):
    """Heartbeats and reserved bytes use the database's clock."""
    await held(world, "source", rate=10.0)
    real, source = time.time, frozenset([str(world.collections["source"])])
    monkeypatch.setattr(time, "time", lambda: real() + ahead)
    async with opened.write() as connection:
        here = Enrolled(connection)
        await here.enrol("w", "", "here")
        assert await here.dead(SILENCE) == []
        await silent(connection, SILENCE + 1)
        assert await here.dead(SILENCE) == ["w"]
        assert await here.beat("w")
        assert await here.dead(SILENCE) == []
    await RateReservations(opened).wait(source, 5)
    async with opened.read() as connection:
        row = sa.select(collections.c.rate_until).where(collections.c.id == str(world.collections["source"]))
        promised = (await connection.execute(row)).scalar_one()
    assert abs(promised - real()) < APART / 2


async def test_the_clock_of_a_sqlite_file_is_that_of_its_host(opened):
    async with opened.read() as connection:
        assert abs(await read_clock(connection) - time.time()) < APART / 2
