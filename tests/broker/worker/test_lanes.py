"""Lanes of a task: all start as soon as there is work, without polling.

The worker does not poll here: a lane opens only after a notification.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path

import pytest

from broker.models.tasks import Item
from broker.services.collections.trees import GridFTPTree
from broker.storage.lanes import LaneStore
from broker.worker import worker
from broker.worker.actions import discovery
from tests.broker.worlds import ANN, Servers, World, held, read, working, world_at, write
from tests.support.waiting import until

TREE = [Item(source="/d/", destination="/d/")]


@pytest.fixture
async def world(
    servers: Servers, database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[World]:
    for name in ("LOOK", "IDLE", "TURN"):
        monkeypatch.setattr(worker, name, 3600.0)
    async with world_at(servers, database, tmp_path) as world, working(world):
        yield world


async def test_files_of_a_large_folder_are_copied_before_all_of_it_is_read(world, monkeypatch):
    files = write(world.source.root, {f"d/f{i}": 10 for i in range(2 * discovery.MUCH)})
    listed, copied = GridFTPTree.list, asyncio.Event()

    async def endless(self, path, *more):
        """A listing that continues until something is copied."""
        async with aclosing(listed(self, path, *more)) as listing:
            async for batch in listing:
                yield batch
        await copied.wait()

    monkeypatch.setattr(GridFTPTree, "list", endless)
    number = await world.submit("TRANSFER", TREE)
    await world.moved(number, 1)
    copied.set()
    task = await world.over(number)
    assert (task.status, task.files_transferred) == ("SUCCEEDED", len(files)), task.error
    assert read(world.sink.root) == files


async def test_work_found_by_one_lane_is_shared_with_all_at_once(world):
    write(world.source.root, {f"d/f{i}": 50_000 for i in range(discovery.MUCH - 1)})
    await held(world, rate=1e6)
    number = await world.submit("TRANSFER", TREE)

    async def both() -> bool:
        return (await world.task(number)).files == discovery.MUCH - 1 and await lanes(world) >= 2

    await until(both)
    await world.factory.tasks.cancel(ANN, number)


async def lanes(world: World) -> int:
    async with world.factory.database.read() as connection:
        return len(await LaneStore(connection).open())
