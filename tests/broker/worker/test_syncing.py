"""Existing files at the destination are skipped and counted once, at each sync level."""

import os
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path

import pytest

from broker.models.history import TransferRecord
from broker.models.tasks import Item
from broker.services.collections.trees import GridFTPTree
from coalloc.errors import ConnectionLost
from tests.broker.worlds import Servers, World, read, register, working, world_at, write
from tests.support.waiting import until

TREE = [Item(source="/d/", destination="/d/")]


@pytest.fixture
async def world(servers: Servers, database: str, tmp_path: Path) -> AsyncIterator[World]:
    async with world_at(servers, database, tmp_path) as world, working(world):
        yield world


async def test_a_file_of_a_folder_that_is_gone_through_again_is_counted_once(world, monkeypatch):
    files = write(world.source.root, {f"d/f{i}": 100 for i in range(20)} | {"d/same": 100})
    write(world.sink.root, {"d/same": 100})
    listed, cut = GridFTPTree.list, []

    async def once(self, path, *more):
        """A listing whose connection is lost after all its entries are copied."""
        async with aclosing(listed(self, path, *more)) as listing:
            async for batch in listing:
                yield batch
        if self.server.source == f"ftp://{world.source.host}:{world.source.port}" and not cut:
            cut.append(path)
            await world.moved(number, 20)
            raise ConnectionLost("the connection is lost", "try again")

    monkeypatch.setattr(GridFTPTree, "list", once)
    number = await world.submit("TRANSFER", TREE, sync_level=1)
    task = await world.over(number)
    assert (task.status, task.faults, cut) == ("SUCCEEDED", 1, ["/d/"])
    assert (task.files, task.files_transferred, task.files_skipped) == (21, 20, 1)
    assert len(read(world.sink.root)) == len(files)


async def compared(world: World, origin: str, to: str, item: Item) -> dict[str, bytes]:
    """Return the destination's content after a sync in which one of two files existed."""
    root = world.sink.root if to == "sink" else world.local
    write(root, {"d/other": 1000})
    (root / "d" / "same").write_bytes((world.source.root / "d" / "same").read_bytes())
    task = await world.over(await world.submit("TRANSFER", [item], to, origin, sync_level=3))
    assert task.status == "SUCCEEDED", task.error
    assert (task.files, task.files_transferred, task.files_skipped) == (2, 1, 1)
    assert (task.bytes_transferred, task.bytes) == (1000, 1000)
    return read(root)


@pytest.mark.parametrize("to", ["sink", "local"])
@pytest.mark.parametrize("told", [True, False], ids=["recorded", "asked"])
async def test_datasets_with_equal_checksums_at_the_destination_are_not_copied(world, to, told):
    files = {f"d/{name}": os.urandom(1000) for name in ("same", "other")}
    for name, content in files.items():
        await register(world, f"cms:{name}", content, world.source, told=told)
    assert await compared(world, "catalogue", to, Item(source="/cms/d/", destination="/d/")) == files


async def test_files_with_equal_checksums_are_not_fetched(world):
    files = write(world.source.root, {"d/same": 1000, "d/other": 1000})
    assert await compared(world, "source", "local", TREE[0]) == files


async def test_only_the_moved_bytes_of_a_sync_are_learnt(world):
    """Files of 16 MB, most of which exist already."""
    size = 16 << 20
    write(world.source.root, {f"d/f{i}": size for i in range(4)})
    write(world.sink.root, {"d/f3": 10})
    for i in range(3):
        (world.sink.root / "d" / f"f{i}").write_bytes((world.source.root / "d" / f"f{i}").read_bytes())
    task = await world.over(await world.submit("TRANSFER", TREE, sync_level=3))
    assert (task.status, task.files_transferred, task.files_skipped) == ("SUCCEEDED", 1, 3)

    async def learnt() -> list[TransferRecord]:
        return await world.factory.transfers.listed({}, None, 10)

    await until(learnt)
    assert [(each.bytes, each.ranges) for each in await learnt()] == [(size, 1)]
    again = await world.over(await world.submit("TRANSFER", TREE, sync_level=3))
    assert (again.files_transferred, again.files_skipped) == (0, 4)
    assert len(await learnt()) == 1
