"""Partial data of finished tasks is removed, whichever worker wrote it."""

import os
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from broker.models.callers import Caller
from broker.models.tasks import Item
from broker.models.work import PlannedWork, WorkResult
from broker.storage import ended_tasks
from broker.storage.ended_tasks import LeftoverStore
from broker.storage.lanes import LaneStore
from broker.storage.tasks import TaskStore
from broker.storage.work import WorkStore
from broker.storage.workers import WorkerStore
from broker.worker import sweeping
from broker.worker.executor import Executor
from broker.worker.temporary_names import folder, temporary
from tests.broker.worlds import ANN, World, begun, held, read, working, world_of, world_with, write
from tests.support.gridftp import GridFTPServer
from tests.support.waiting import until

ROOT = Caller(subject="root", role="admin")
FILE = [Item(source="/a", destination="/a")]


@pytest.fixture
async def world(database: str, tmp_path: Path) -> AsyncIterator[World]:
    async with world_of(database, tmp_path) as world:
        yield world


async def empty(folder: Path) -> None:
    """Wait until a directory is empty."""
    await until(lambda: not any(folder.iterdir()))


async def left(world: World) -> None:
    """Wait until no worker is busy."""

    async def nobody() -> bool:
        async with world.factory.database.read() as connection:
            return not await LaneStore(connection).open()

    await until(nobody)


async def test_a_canceled_task_leaves_nothing_behind(world):
    write(world.source.root, {"a": 150_000_000})
    await held(world, rate=20e6)
    async with working(world):
        number = await world.submit("TRANSFER", FILE)
        await begun(world, number, 1_000_000)
        assert await world.factory.tasks.cancel(ANN, number)
        await empty(world.sink.root)
    task = await world.task(number)
    assert (task.status, task.error_code) == ("FAILED", "CANCELED")


@pytest.mark.parametrize("size", [40_000_000, 150_000_000], ids=["small", "large"])
async def test_a_task_that_was_paused_and_is_canceled_leaves_nothing_behind(world, size):
    write(world.source.root, {"a": size})
    await held(world, rate=2e6)
    async with working(world):
        number = await world.submit("TRANSFER", FILE)
        await begun(world, number, 1_000_000)
        await world.factory.tasks.pause(ROOT, number, "maintenance")
        await left(world)
        assert any(world.sink.root.iterdir())  # the worker would continue with it
        await world.factory.tasks.cancel(ANN, number)
        await empty(world.sink.root)


async def test_the_next_worker_deletes_leftovers_of_the_last(world):
    files = write(world.source.root, {"a": 150_000_000, "b": 10})
    await held(world, rate=10e6)
    async with working(world):
        number = await world.submit("TRANSFER", FILE)
        await begun(world, number, 1_000_000)
    await world.factory.tasks.cancel(ANN, number)
    assert any(world.sink.root.iterdir())
    async with working(world):
        await empty(world.sink.root)
        await world.done("TRANSFER", [Item(source="/b", destination="/b")])
    assert read(world.sink.root) == {"b": files["b"]}


async def test_it_is_cleared_away_without_the_source(world):
    write(world.source.root, {"a": 150_000_000})
    await held(world, rate=20e6)
    async with working(world):
        number = await world.submit("TRANSFER", FILE)
        await begun(world, number, 30_000_000)
        world.source.kill()
        await world.factory.tasks.cancel(ANN, number)
        await empty(world.sink.root)


async def test_leftovers_at_an_unreachable_server_are_deleted_later(world, monkeypatch):
    monkeypatch.setattr(ended_tasks, "PAUSE", 0.5)
    sweep_one, vain = sweeping.Sweeper._delete_partial_files, []

    async def tried(*given: Any) -> None:
        try:
            await sweep_one(*given)
        except Exception:
            vain.append(given)
            raise

    monkeypatch.setattr(sweeping.Sweeper, "_delete_partial_files", tried)
    write(world.source.root, {"a": 150_000_000})
    await held(world, rate=20e6)
    async with working(world):
        number = await world.submit("TRANSFER", FILE)
        await begun(world, number, 30_000_000)
        world.sink.kill()
        await world.factory.tasks.cancel(ANN, number)
        await until(lambda: len(vain) >= 2)
        assert any(world.sink.root.iterdir())
        with GridFTPServer(world.sink.root, world.sink.host, port=world.sink.port):
            await empty(world.sink.root)


async def test_leftovers_with_impossible_names_are_not_looked_for(world):
    """The name was never written, and looking for it in vain would block the rest."""
    write(world.source.root, {"a": 1})
    async with working(world):
        await world.done("TRANSFER", [Item(source="/a", destination="/\u00fc")])
        await until(lambda: nothing_due(world))


async def nothing_due(world: World) -> bool:
    """Return whether nothing is due for removal at any time."""
    async with world.factory.database.read() as connection:
        return not await LeftoverStore(connection).due({""}, time.time() + 1e6, 10)


async def test_partial_downloads_in_folders_of_workers_are_deleted(world):
    (world.source.root / "a").touch()
    os.truncate(world.source.root / "a", 2 << 30)
    async with working(world):
        number = await world.submit("TRANSFER", FILE, "local")
        await until(lambda: any(world.local.glob(".a.coget-*.coget/data")))
        world.source.pause()
        await world.factory.tasks.cancel(ANN, number)
        await empty(world.local)


async def tried(world: World, destinations: list[str], to: str = "sink") -> list[str]:
    """Insert a finished task that had begun to copy to all of these; return the temporary names."""
    number, now = await world.submit("TRANSFER", FILE, to), time.time()
    async with world.factory.database.write() as connection:
        works = WorkStore(connection)
        await WorkerStore(connection).enrol("w", "", "here")
        await works.add(number, [PlannedWork("copy", "/a", destination) for destination in destinations])
        leased = await works.lease(number, "w", ["copy"], False, 10, 100, now)
        assert len(leased) == len(destinations)
        await WorkerStore(connection).remove(["w"])
    await world.factory.tasks.cancel(ANN, number)
    if to == "local":
        return [folder(temporary(work.destination, work)) for work in leased]
    return [temporary(work.destination, work) for work in leased]


async def sweep(world: World) -> None:
    """Remove the partial data that are due, once."""
    factory = world.factory
    services = (factory.places, factory.replicas, factory.catalogue, factory.bad_replica_reports, factory.unpromised)
    carrier = Executor(factory.database, factory.trees, *services)
    await sweeping.Sweeper(factory.database, carrier, {"", "here"}).sweep()


async def test_a_leftover_that_cannot_be_deleted_does_not_block_others(database, tmp_path, monkeypatch):
    monkeypatch.setattr(sweeping, "BATCH", 1)
    kept = tmp_path / "to" / "kept"
    kept.mkdir(parents=True)
    with (
        GridFTPServer(tmp_path / "from") as source,
        GridFTPServer(tmp_path / "to", "127.0.0.2", options=("-rp", f"{tmp_path / 'to'},R{kept}")) as sink,
    ):
        async with world_with(database, tmp_path, source, sink) as world:
            names = await tried(world, ["/kept/a", "/b"])
            write(sink.root, {name.lstrip("/"): 10 for name in names})
            await sweep(world)
            assert [name for name in names if (sink.root / name.lstrip("/")).exists()] == names[:1]
            assert not await nothing_due(world)  # it is retried


async def test_a_folder_of_a_worker_is_cleared_of_all_that_can_be(world):
    first, second = await tried(world, ["/folder", "/b"], "local")
    write(world.local, {"folder/x": 1, f"{first}/theirs": 1, f"{second}/data": 1, "b.coget/data": 1})
    await sweep(world)
    assert set(read(world.local)) == {"folder/x", f"{first}/theirs", "b.coget/data"}


@pytest.mark.parametrize("to", ["sink", "local"])
@pytest.mark.parametrize("over", ["succeeded", "canceled"])
async def test_all_names_are_cleared_away_that_a_task_ever_used(world, to, over):
    """This includes successful tasks: a worker that counted as dead may have continued."""
    number, now = await world.submit("TRANSFER", FILE, to), time.time()
    root, names = world.sink.root if to == "sink" else world.local, []
    async with world.factory.database.write() as connection:
        works = WorkStore(connection)
        await works.add(number, [PlannedWork("copy", "/a", "/d/a")])
        for worker in ("first", "second", "third"):
            await WorkerStore(connection).enrol(worker, "", "here")
            (work,) = await works.lease(number, worker, ["copy"], False, 10, 100, now)
            beside = temporary("/d/a", work)
            names.append(f"d/{folder(beside)}/data" if to == "local" else beside.lstrip("/"))
            if worker != "third":
                await WorkerStore(connection).remove([worker], died=True)
        assert len(set(names)) == 3
        await works.complete("third", [WorkResult(work, "succeeded")], now)
        looked = await works.lease(number, "third", ["look"], False, 10, 100, now)
        await works.complete("third", [WorkResult(look, "succeeded") for look in looked], now)
        if over == "succeeded":
            (task,) = await TaskStore(connection).finish({number}, now)
            assert task.status == "SUCCEEDED"
    if over == "canceled":
        await world.factory.tasks.cancel(ANN, number)
    write(root, dict.fromkeys(["d/a", "d/.a.coget-theirs", *names], 10))
    await sweep(world)
    assert set(read(root)) == {"d/a", "d/.a.coget-theirs"}


async def test_one_worker_at_a_time_sweeps_after_the_last_lane_is_closed(world):
    number, now = await world.submit("TRANSFER", FILE), time.time()
    async with world.factory.database.write() as connection:
        await WorkerStore(connection).enrol("w", "", "here")
        (candidate,) = await LaneStore(connection).candidates({""}, now)
        lane = await LaneStore(connection).add("w", candidate, now)
    await world.factory.tasks.cancel(ANN, number)
    async with world.factory.database.write() as connection:
        swept, later = LeftoverStore(connection), time.time()
        assert await swept.due({""}, later, 10) == []
        await LaneStore(connection).close("w", [lane])
        assert await swept.due({"elsewhere"}, later, 10) == []
        assert await swept.due({""}, later, 10) == [number]
        taken = await swept.take(number, later)
        assert (taken.task, taken.pair) == (number, candidate.pair)
        assert await swept.take(number, later) is None
        assert await swept.due({""}, later, 10) == []
        assert await swept.due({""}, later + ended_tasks.PAUSE, 10) == [number]  # the worker that took it may have died
        assert await swept.take(number, later + 2 * ended_tasks.LONGEST)
        assert await swept.due({""}, later + 9 * ended_tasks.LONGEST, 10) == []
