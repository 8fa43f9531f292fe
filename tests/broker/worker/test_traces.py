"""Recorded decisions of workers, with ranges and sources: real GridFTP servers, on both databases."""

import asyncio
import os
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import pytest

from broker.background import worker_of
from broker.models.catalogue import Dataset
from broker.models.decisions import StoredDecision
from broker.models.history import Observed
from broker.models.tasks import Item
from broker.storage.decisions import DecisionFilter, DecisionStore
from broker.storage.history import ObservationStore
from coalloc.util.intervals import Intervals
from tests.broker.worker.test_carrying import register
from tests.broker.worlds import ANN, World, add_replica, world_of, write
from tests.support.gridftp import GridFTPServer
from tests.support.waiting import PATIENCE, until

MB = 1_000_000


@pytest.fixture
async def world(database: str, tmp_path: Path) -> AsyncIterator[World]:
    async with world_of(database, tmp_path) as world:
        running = asyncio.create_task(worker_of(world.factory).run())
        yield world
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running


async def decided(world: World, task: str) -> StoredDecision:
    """Return the decision for a task of one file; it is stored shortly after the task's end."""
    try:
        async with asyncio.timeout(PATIENCE):
            while True:
                async with world.factory.database.read() as connection:
                    page = await DecisionStore(connection).page(DecisionFilter(subject="ann", task=task), 100)
                if page.decisions:
                    (only,) = page.decisions
                    return await world.factory.decisions.one(ANN, only.id)
                await asyncio.sleep(0.05)
    except TimeoutError:
        events, _ = await world.factory.tasks.events(ANN, task, None, 100, 0)
        waiting = [(each.get_name(), each.get_stack(limit=4)) for each in asyncio.all_tasks()]
        raise AssertionError(f"no decision was kept; events: {events}; what waits: {waiting}") from None


async def test_files_that_a_folder_gets_at_once_are_one_observation(world, tmp_path):
    """Each alone would have only a part of the server's rate."""
    write(world.source.root, {f"d/{name}": 9 * MB for name in "abcd"})
    task = await world.done("TRANSFER", [Item(source="/d/", destination="/d/")], "local", perf_cc=1)
    assert (task.status, task.files_transferred) == ("SUCCEEDED", 4), task.error

    async def listed():
        async with world.factory.database.read() as connection:
            return await ObservationStore(connection).listed({}, None, 10)

    (seen,) = await until(listed)
    assert (seen.bytes, seen.ranges, seen.source) == (36 * MB, 4, f"ftp://{world.source.host}:{world.source.port}")
    assert 0 < seen.busy_seconds <= seen.ended - seen.started


@pytest.mark.parametrize("to", ["sink", "local"])
async def test_ranges_from_three_servers_add_up_to_the_file(world, tmp_path, to):
    content = os.urandom(60 * MB)
    with GridFTPServer(tmp_path / "b", "127.0.0.3") as b, GridFTPServer(tmp_path / "c", "127.0.0.4") as c:
        await register(world, "cms:run/1.root", content, world.source, b, c)
        item = Item(source="/cms/run/1.root", destination="/in/1.root")
        task = await world.over(await world.submit("TRANSFER", [item], to, "catalogue"))
        urls = {f"ftp://{server.host}:{server.port}" for server in (world.source, b, c)}
    assert task.status == "SUCCEEDED", task.error
    kept = await decided(world, task.id)
    listed = kept.listed
    assert (listed.kind, listed.outcome, listed.bytes) == ("copy" if to == "sink" else "download", "ok", 60 * MB)
    assert (listed.sink, listed.strategy) == ("here", "adaptive")
    assert listed.unknown == sum(each.outcome == "unused" for each in kept.sources)  # late, and so not needed
    assert "run/1.root" in listed.thing
    assert {each.source for each in kept.sources} == urls
    assert sum(each.planned_bytes for each in kept.sources) == 60 * MB
    moved = sum(each.bytes for each in kept.sources)
    assert moved == sum(each.bytes for each in kept.ranges) >= 60 * MB
    if moved == 60 * MB:  # otherwise a source stood still on a busy machine, and another one fetched its bytes, too
        assert {each.ending for each in kept.ranges} <= {"whole", "shortened"}
    brought = Intervals((each.start, each.start + each.bytes) for each in kept.ranges)
    assert list(brought) == [(0, 60 * MB)]
    for each in kept.ranges:
        assert each.asked <= each.over <= listed.seconds
        assert not each.bytes or each.asked <= each.first <= each.last <= each.over
    assert listed.best_seconds <= listed.fetch_seconds <= listed.seconds
    assert listed.planned_seconds is None or listed.best_seconds <= listed.planned_seconds
    assert sum(kept.shares) == pytest.approx(60 * MB)


async def place(world: World, name: str, size: int, *servers: GridFTPServer) -> None:
    """Register a sparse dataset with a replica at each of these servers."""
    await world.factory.catalogue.put("root", Dataset(name=name, size=size))
    for server in servers:
        (server.root / name).touch()
        os.truncate(server.root / name, size)
        await add_replica(world, name, server)


def begun(world: World) -> bool:
    """Return whether bytes have arrived at the sink."""
    return any(path.stat().st_size for path in world.sink.root.iterdir())


async def test_a_server_that_dies_shows_as_a_fault_whose_bytes_others_bring(world, tmp_path):
    size = 1 << 30
    with GridFTPServer(tmp_path / "b", "127.0.0.3") as b, GridFTPServer(tmp_path / "c", "127.0.0.4") as c:
        await place(world, "hole", size, world.source, b, c)
        for other in (world.source, c):
            other.pause()  # b delivers the first bytes
        number = await world.submit("TRANSFER", [Item(source="/hole", destination="/in")], "sink", "catalogue")
        await until(lambda: begun(world))
        b.kill()
        for other in (world.source, c):
            other.resume()
        task = await world.over(number)
    assert task.status == "SUCCEEDED", task.error
    kept = await decided(world, number)
    (dead,) = [i for i, each in enumerate(kept.sources) if each.source == f"ftp://{b.host}:{b.port}"]
    assert kept.sources[dead].error
    assert "failed" in {each.ending for each in kept.ranges if each.source == dead}
    lost = [each for each in kept.ranges if each.source == dead and each.ending == "failed"]
    for each in lost:
        assert any(other.start < each.end and each.start < other.end for other in kept.ranges if other.source != dead)
    assert sum(each.bytes for each in kept.ranges) == size
    brought = Intervals((each.start, each.start + each.bytes) for each in kept.ranges)
    assert list(brought) == [(0, size)]


async def test_small_files_leave_no_decisions(world, tmp_path):
    with GridFTPServer(tmp_path / "b", "127.0.0.3") as b:
        for i in range(3):
            await place(world, f"small{i}", 500_000, world.source, b)
        await place(world, "large", 2 * MB, world.source, b)
        items = [Item(source=f"/{name}", destination=f"/in/{name}") for name in ("small0", "small1", "small2", "large")]
        task = await world.over(await world.submit("TRANSFER", items, "sink", "catalogue"))
    assert task.status == "SUCCEEDED", task.error
    assert (await decided(world, task.id)).listed.thing == "large"


@pytest.mark.parametrize("to", ["sink", "local"])
async def test_candidates_are_kept_with_their_forecasts(world, tmp_path, to):
    now = time.time()
    with GridFTPServer(tmp_path / "b", "127.0.0.3") as b:
        await place(world, "x", 40 * MB, world.source, b)
        sources = {f"ftp://{server.host}:{server.port}": rate for server, rate in ((world.source, 90), (b, 30))}
        for source, rate in sources.items():
            same = {"source": source, "sink": "here", "bytes": 10 * rate * MB}
            moments = [now - 2000 + 20 * i for i in range(40)]
            seen = [Observed(id=f"{rate}.{at}", started=at, ended=at + 10, **same) for at in moments]
            await world.factory.transfers.take("ann", seen)
        await world.factory.forecasting.look()
        await world.factory.forecasting._links.all_made()
        task = await world.over(await world.submit("TRANSFER", [Item(source="/x", destination="/in")], to, "catalogue"))
    assert task.status == "SUCCEEDED", task.error
    kept = await decided(world, task.id)
    for each in kept.sources:
        assert each.rate.p10 <= each.rate.p50 == pytest.approx(sources[each.source] * MB, rel=0.1)
        assert each.rate.p50 <= each.rate.p90
        assert each.reason
    planned = {each.source: each.planned_bytes for each in kept.sources}
    assert sum(planned.values()) == 40 * MB
