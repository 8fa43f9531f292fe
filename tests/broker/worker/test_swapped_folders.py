"""Directories of workers that other users can write to: links that replace a checked path have no effect."""

import asyncio
import ctypes
import os
import shutil
import threading
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from pathlib import Path

import pytest

from broker.models.tasks import Item
from broker.services.collections.trees import LocalTree
from broker.worker.actions import downloading
from coalloc.api import Request, discard, download
from coalloc.errors import CoallocError
from tests.broker.random_trees import seen
from tests.broker.worlds import ANN, working, world_at, write
from tests.support.effort import effort
from tests.support.waiting import until

AT_FDCWD, RENAME_EXCHANGE = -100, 2  # from <fcntl.h>, missing in Python
TRIES = effort(50, 1500)


@pytest.fixture
async def world(servers, database, tmp_path):
    async with world_at(servers, database, tmp_path) as world, working(world):
        yield world


def swapping(world, name, elsewhere):
    """Check the path, then replace `name` by a link."""
    look = downloading._reached

    async def looked(sink, work):
        await look(sink, work)
        folder = world.local / name
        if not folder.is_symlink():
            folder.rename(folder.with_name("moved"))
            folder.symlink_to(elsewhere)

    return looked


@pytest.mark.parametrize("outside", [True, False])
async def test_no_file_is_fetched_or_discarded_through_a_link(world, tmp_path, monkeypatch, outside):
    elsewhere = tmp_path / "elsewhere" if outside else world.local / "private"
    (elsewhere / "x.coget").mkdir(parents=True)
    (elsewhere / "x.coget" / "data").write_bytes(b"precious")
    write(world.source.root, {"x": 1000})
    (world.local / "folder").mkdir()
    monkeypatch.setattr(downloading, "_reached", swapping(world, "folder", elsewhere))
    number = await world.submit("TRANSFER", [Item(source="/x", destination="/folder/x")], "local")

    async def trouble():
        return (await world.task(number)).error

    message = await until(trouble)
    assert "local:/folder/x" in message
    assert "symbolic link" in message or "link" in message
    await world.factory.tasks.cancel(ANN, number)
    assert [path.name for path in elsewhere.iterdir()] == ["x.coget"]
    assert (elsewhere / "x.coget" / "data").read_bytes() == b"precious"


class Exchanging:
    """A thread that swaps a directory and an outward link, over and over, until it is stopped."""

    def __init__(self, folder: Path, link: Path) -> None:
        self._paths = [os.fsencode(path) for path in (folder, link)]
        self._renameat2 = ctypes.CDLL(None, use_errno=True).renameat2
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        while not self._over.is_set():
            assert self._renameat2(AT_FDCWD, self._paths[0], AT_FDCWD, self._paths[1], RENAME_EXCHANGE) == 0
            time.sleep(0)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()


async def listed(tree: LocalTree) -> None:
    async with aclosing(tree.list("/a/b/")) as listing:
        names = {entry.name async for entries in listing for entry in entries}
    assert "outside" not in names


OPERATIONS: dict[str, Callable[[LocalTree, str], Awaitable[object]]] = {
    "stat": lambda tree, _: tree.stat("/a/b/x"),
    "list": lambda tree, _: listed(tree),
    "make": lambda tree, _: tree.make("/a/b/new"),
    "rename from there": lambda tree, _: tree.rename("/a/b/x", "/x"),
    "rename to there": lambda tree, _: tree.rename("/y", "/a/b/y"),
    "replace": lambda tree, _: tree.replace("/y", "/a/b/x"),
    "delete": lambda tree, _: tree.delete("/a/b/x"),
    "remove": lambda tree, _: tree.remove("/a/b/empty"),
    "touch": lambda tree, _: tree.touch("/a/b/x", 1.0),
    "discard": lambda tree, _: asyncio.to_thread(discard, tree.at("/a/b/z"), tree.real("/a/b"), "z.coget"),
    "fetch": lambda tree, url: download(Request((url,), output=tree.at("/a/b/new"), within=tree.real("/a/b"))),
}


def filled(folder: Path) -> None:
    write(folder, {"x": 10, "z.coget/data": 10})
    (folder / "empty").mkdir()


@pytest.mark.long
@pytest.mark.sampled(2)
@pytest.mark.parametrize("exchanged", ["a", "a/b"])
@pytest.mark.parametrize("operation", OPERATIONS)
async def test_no_operation_leaves_a_folder_exchanged_for_a_link(gridftp_server, tmp_path, operation, exchanged):
    """Content outside of the folder is neither shown nor changed, whether a look finds the folder or the link."""
    write(gridftp_server.root, {"new": 10})
    base, outside, link = tmp_path / "base", tmp_path / "outside", tmp_path / "base" / "link"
    for folder in (outside, outside / "b"):
        filled(folder)
        (folder / "outside").touch()
    before, times = seen(outside), [path.stat().st_mtime for path in outside.rglob("*")]
    tree, outcomes = LocalTree(base, "base"), Counter[bool]()
    while outcomes.total() < TRIES or len(outcomes) < 2:
        write(base, {"y": 10})
        filled(base / "a" / "b")
        link.symlink_to(outside)
        with Exchanging(base / exchanged, link):
            for _ in range(5):
                try:
                    await OPERATIONS[operation](tree, gridftp_server.url("new"))
                except CoallocError:
                    outcomes[False] += 1
                else:
                    outcomes[True] += 1
        shutil.rmtree(base)
    assert seen(outside) == before
    assert [path.stat().st_mtime for path in outside.rglob("*")] == times
