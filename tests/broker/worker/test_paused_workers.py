"""A worker that is paused for long while another does its work and the user continues with the file."""

import asyncio
import os
from collections.abc import Callable

import pytest

from broker.models.tasks import Item
from broker.services.collections.trees import GridFTPTree, LocalTree
from broker.storage.workers import WorkerStore
from broker.worker.actions.linking import Linking
from broker.worker.worker import Worker
from tests.broker.worker.test_lost_workers import one_worker, world
from tests.broker.worlds import World, working
from tests.support.waiting import until

__all__ = ["world"]

pytestmark = pytest.mark.parametrize("database", ["sqlite"], indirect=True)
WRITTEN = b"what the user wrote when the task was over"


class Stopped:
    """A pause in the first call of a method, as in a paused process."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, owner: type, name: str) -> None:
        self._method: Callable = getattr(owner, name)
        self.reached, self.go_on = asyncio.Event(), asyncio.Event()

        async def slow(*given):
            if not self.reached.is_set():
                self.reached.set()
                await self.go_on.wait()
            return await self._method(*given)

        monkeypatch.setattr(owner, name, slow)


async def taken_over(world: World, first: Worker, number: str) -> None:
    """Let another worker do all of a task, because the first one counts as dead."""
    async with world.factory.database.write() as connection:
        await WorkerStore(connection).remove([first._name], died=True)
    async with working(world):
        assert (await world.over(number)).status == "SUCCEEDED"


@pytest.mark.parametrize(
    ("owner", "name"),
    [(Linking, "_there"), (GridFTPTree, "link"), (GridFTPTree, "replace")],
    ids=lambda each: str(each),
)
async def test_it_puts_no_link_in_the_place_of_the_file(world, monkeypatch, owner, name):
    (world.source.root / "t").mkdir()
    (world.source.root / "t/real").write_bytes(b"real")
    (world.source.root / "t/l").symlink_to("real")
    items = [Item(source="/t/", destination="/t/", recursive=True)]
    number = await world.submit("TRANSFER", items, "sink", recursive_symlinks="keep")
    place, stopped = world.sink.root / "t/l", Stopped(monkeypatch, owner, name)
    async with one_worker(world, monkeypatch) as first:
        await stopped.reached.wait()
        await taken_over(world, first, number)
        place.unlink()
        place.write_bytes(WRITTEN)
        stopped.go_on.set()
        await until(lambda: not first._lanes)
    assert not place.is_symlink()
    assert place.read_bytes() == WRITTEN


async def test_it_does_not_change_when_the_file_was_modified(world, monkeypatch):
    (world.source.root / "a").write_bytes(b"aaa")
    os.utime(world.source.root / "a", (1e9, 1e9))
    place = world.local / "a"
    number = await world.submit("TRANSFER", [Item(source="/a", destination="/a")], "local", preserve_timestamp=True)
    stopped = Stopped(monkeypatch, LocalTree, "touch")
    async with one_worker(world, monkeypatch) as first:
        await stopped.reached.wait()
        await taken_over(world, first, number)
        assert place.stat().st_mtime == 1e9
        place.write_bytes(WRITTEN)
        modified = place.stat().st_mtime
        stopped.go_on.set()
        await until(lambda: not first._lanes)
    assert (place.stat().st_mtime, place.read_bytes()) == (modified, WRITTEN)
