"""Workers as separate processes on a real PostgreSQL: tasks survive the death of any of them."""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from broker.background import WakeUps
from broker.errors import Unavailable
from broker.models.catalogue import CatalogueReplica, Dataset
from broker.models.tasks import Item
from broker.storage.database import addressed
from broker.storage.migration import upgrade
from tests.broker.worlds import ANN, World, read, world_of, write
from tests.support.broker import BrokerProcess
from tests.support.effort import effort
from tests.support.postgres import postgres
from tests.support.waiting import PATIENCE, until
from tests.support.workers import Workers

LARGE = 4 << 30
FILES = effort(400, 3000)
TREE = [Item(source="/d/", destination="/d/", recursive=True)]


@pytest.fixture
def workers(database: str, tmp_path: Path) -> Iterator[Workers]:
    if database.startswith("sqlite"):
        pytest.skip("on SQLite the broker itself works")
    started = Workers(database, tmp_path)
    yield started
    started.close()


@pytest.fixture
async def world(workers: Workers, database: str, tmp_path: Path) -> AsyncIterator[World]:
    async with world_of(database, tmp_path) as world, WakeUps(world.factory.database.url) as wake_ups:
        world.factory.new_work.subscribe(wake_ups.ring)
        yield world


async def moving(world: World, number: str, files: int) -> None:
    """Wait until this many files of a task have arrived."""
    async with asyncio.timeout(PATIENCE):
        while (await world.task(number)).files_transferred < files:  # noqa: ASYNC110 - a table changes
            await asyncio.sleep(0.02)


async def half_copied(world: World) -> str:
    """A task that copies a large dataset from the catalogue, at the moment when its file is begun."""
    (world.source.root / "a").touch()
    os.truncate(world.source.root / "a", LARGE)
    await world.factory.catalogue.put("root", Dataset(name="cms:a", size=LARGE))
    await world.factory.catalogue.put_replica("root", CatalogueReplica(dataset="cms:a", endpoint="source"))
    number = await world.submit("TRANSFER", [Item(source="/cms/a", destination="/a")], origin="catalogue")
    await until(lambda: any(world.sink.root.iterdir()))
    return number


async def attempts(world: World, number: str) -> list[tuple[str, int]]:
    """Return the attempts of each file of a task, and its final state."""
    asked = sa.text("SELECT state, attempt FROM work WHERE task_id = :task AND kind = 'copy'")
    async with world.factory.database.read() as connection:
        return [tuple(row) for row in await connection.execute(asked, {"task": number})]


async def test_several_workers_share_a_task(world, workers):
    files = write(world.source.root / "d", {f"f{i}": 1000 for i in range(2000)})
    workers.start()
    workers.start()
    task = await world.over(await world.submit("TRANSFER", TREE))
    assert (task.status, task.files_transferred) == ("SUCCEEDED", 2000), workers.said()
    assert read(world.sink.root / "d") == files
    assert {attempt for _, attempt in await attempts(world, task.id)} == {1}


@pytest.mark.long
async def test_a_killed_workers_files_are_done_by_others_and_none_that_was_done_again(world, workers):
    files = write(world.source.root / "d", {f"f{i}": 1000 for i in range(FILES)})
    first = workers.start()
    number = await world.submit("TRANSFER", TREE)
    await moving(world, number, FILES // 6)
    first.kill()
    first.wait()
    done = [state for state, _ in await attempts(world, number)].count("succeeded")
    assert done < FILES
    workers.start()
    task = await world.over(number)
    assert (task.status, task.files_transferred) == ("SUCCEEDED", FILES), workers.said()
    assert read(world.sink.root / "d") == files  # and no temporary names remain
    again = [attempt for _, attempt in await attempts(world, number) if attempt > 1]
    assert len(again) <= FILES - done


async def test_partial_copies_of_a_killed_worker_are_deleted(world, workers):
    first = workers.start()
    number = await half_copied(world)
    first.kill()
    first.wait()
    await world.factory.tasks.cancel(ANN, number)
    assert any(world.sink.root.iterdir())
    workers.start()
    await until(lambda: not any(world.sink.root.iterdir()))


@pytest.mark.long
async def test_a_terminated_worker_gives_back_its_leases(world, workers):
    files = write(world.source.root / "d", {f"f{i}": 1000 for i in range(FILES)})
    first = workers.start()
    number = await world.submit("TRANSFER", TREE)
    await moving(world, number, FILES // 6)
    first.terminate()
    assert first.wait(PATIENCE) == 0
    async with world.factory.database.read() as connection:
        assert (await connection.execute(sa.text("SELECT count(*) FROM workers"))).scalar_one() == 0
    assert {state for state, _ in await attempts(world, number)} <= {"succeeded", "pending"}
    workers.start()
    task = await world.over(number)
    assert (task.status, task.files_transferred, task.faults) == ("SUCCEEDED", FILES, 0)
    assert read(world.sink.root / "d") == files


@pytest.mark.long
async def test_a_database_that_crashes_costs_time(tmp_path):
    with postgres() as server, contextlib.ExitStack() as stack:
        database = server.create()
        upgrade(addressed(database))
        async with world_of(database, tmp_path) as world:
            workers = stack.enter_context(contextlib.closing(Workers(database, tmp_path)))
            files = write(world.source.root / "d", {f"f{i}": 1000 for i in range(FILES)})
            number = await world.submit("TRANSFER", TREE)
            workers.start()
            await moving(world, number, FILES // 6)
            await asyncio.to_thread(server.crash)
            with contextlib.suppress(Unavailable):  # the pool finds out which of its connections are gone
                await world.task(number)
            task = await world.over(number)
            assert (task.status, task.files_transferred) == ("SUCCEEDED", FILES), workers.said()
            assert read(world.sink.root / "d") == files


@pytest.mark.long
async def test_a_broker_that_is_killed_goes_on_where_it_was(database, tmp_path):
    if not database.startswith("sqlite"):
        pytest.skip("on PostgreSQL others work")
    async with world_of(database, tmp_path) as world:
        files = write(world.source.root / "d", {f"f{i}": 1000 for i in range(FILES)})
        number = await world.submit("TRANSFER", TREE)
        with BrokerProcess(database, tmp_path, "none") as broker:
            await moving(world, number, FILES // 6)
            broker.process.kill()
        done = [state for state, _ in await attempts(world, number)].count("succeeded")
        with BrokerProcess(database, tmp_path, "none"):
            task = await world.over(number)
        assert (task.status, task.files_transferred) == ("SUCCEEDED", FILES)
        assert read(world.sink.root / "d") == files
        assert len([attempt for _, attempt in await attempts(world, number) if attempt > 1]) <= FILES - done


async def test_partial_copies_of_a_killed_broker_are_deleted(database, tmp_path):
    if not database.startswith("sqlite"):
        pytest.skip("on PostgreSQL others work")
    async with world_of(database, tmp_path) as world:
        with BrokerProcess(database, tmp_path, "none") as broker:
            number = await half_copied(world)
            broker.process.kill()
        assert any(world.sink.root.iterdir())
        await world.factory.tasks.cancel(ANN, number)
        with BrokerProcess(database, tmp_path, "none"):
            await until(lambda: not any(world.sink.root.iterdir()))
