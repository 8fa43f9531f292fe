"""Workers that counted as dead and continue: two never write to one file, and a lost worker never renames its file."""

import asyncio
import signal
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path

import pytest
import sqlalchemy as sa

from broker.background import WakeUps, worker_of
from broker.models.tasks import Item, Work
from broker.storage.ended_tasks import LeftoverStore
from broker.storage.work import WorkStore
from broker.storage.workers import WorkerStore as Enrolled
from broker.worker import fence as fencing
from broker.worker.fence import Fence, LeaseLost
from broker.worker.periodic_checks import SILENCE
from broker.worker.temporary_names import earlier
from broker.worker.worker import Worker
from coalloc.partial_file.sparse_file import Data
from tests.broker.worlds import Servers, World, begun, held, read, register, working, world_at, write
from tests.support.waiting import until
from tests.support.workers import Workers, way

SIZE = 80_000_000
"""Size of which enough is stored for a resume."""
RATE = 2e6
"""Rate in bytes per second, so that a copy runs until the test releases it."""
ON_POSTGRESQL = pytest.mark.parametrize("database", ["postgresql"], indirect=True)
ON_SQLITE = pytest.mark.parametrize("database", ["sqlite"], indirect=True)
ROUTES = pytest.mark.parametrize(
    ("origin", "to"), [("source", "sink"), ("source", "local"), ("catalogue", "sink"), ("catalogue", "local")]
)


@pytest.fixture
def workers(database: str, tmp_path: Path) -> Iterator[Workers]:
    started = Workers(database, tmp_path)
    yield started
    for process in started.running:
        process.send_signal(signal.SIGCONT)
    started.close()


@pytest.fixture
async def world(servers: Servers, database: str, tmp_path: Path) -> AsyncIterator[World]:
    async with world_at(servers, database, tmp_path) as world:
        yield world


@pytest.fixture
async def notified(world: World) -> AsyncIterator[World]:
    """The same world, whose workers get notifications."""
    async with WakeUps(world.factory.database.url) as wake_ups:
        world.factory.new_work.subscribe(wake_ups.ring)
        yield world


def root(world: World, to: str) -> Path:
    return world.sink.root if to == "sink" else world.local


async def copying(world: World, origin: str, to: str, size: int = SIZE) -> tuple[str, bytes]:
    """Submit a task that copies one file or dataset; return its content, too."""
    files = write(world.source.root, {"a": size})
    if origin == "catalogue":
        await register(world, "cms:a", files["a"], world.source, told=False)
    path = "/cms/a" if origin == "catalogue" else "/a"
    number = await world.submit("TRANSFER", [Item(source=path, destination="/a")], to, origin, verify_checksum=False)
    return number, files["a"]


async def silence(world: World) -> None:
    """Mark all present workers as dead, as after a long silence."""
    async with world.factory.database.write() as connection:
        await connection.execute(sa.text("UPDATE workers SET seen_at = 0"))


async def let_go(world: World) -> None:
    """Lift the rate limit."""
    for name in ("source", "sink", "local"):
        await held(world, name, rate=None)


async def lost(world: World) -> bool:
    """Return whether work was lost with a worker."""
    async with world.factory.database.read() as connection:
        return bool((await connection.execute(sa.text("SELECT max(lost) FROM work"))).scalar_one())


@pytest.mark.sampled(2)
@ON_POSTGRESQL
@pytest.mark.parametrize(("origin", "to"), [("source", "sink"), ("catalogue", "local")])
async def test_a_worker_that_was_stopped_and_goes_on_writes_to_no_file_of_another(notified, workers, origin, to):
    for name in ("source", "sink", "local"):
        await held(notified, name, rate=RATE)
    first = workers.start()
    number, content = await copying(notified, origin, to)
    await begun(notified, number, 1_000_000)
    first.send_signal(signal.SIGSTOP)
    await let_go(notified)
    await silence(notified)
    workers.start()
    await until(lambda: lost(notified))
    first.send_signal(signal.SIGCONT)
    task = await notified.over(number)
    assert task.status == "SUCCEEDED", workers.said()
    assert (root(notified, to) / "a").read_bytes() == content
    await until(lambda: set(read(root(notified, to))) == {"a"})


@pytest.mark.sampled(2)
@ON_POSTGRESQL
@pytest.mark.parametrize(("how", "origin", "to"), [("cut", "catalogue", "sink"), ("stall", "source", "local")])
async def test_a_worker_without_its_database_names_no_file(notified, workers, database, tmp_path, how, origin, to):
    """The worker continues while another one does its work anew, from a source that has changed by then."""
    (tmp_path / "way").mkdir()
    async with way(database, tmp_path / "way") as cut:
        workers.start(cut.database)
        await held(notified, "sink", rate=RATE)
        await held(notified, "local", rate=RATE)
        number, _ = await copying(notified, origin, to)
        await begun(notified, number, 1_000_000)
        getattr(cut, how)()
        content = write(notified.source.root, {"a": SIZE})["a"]
        await let_go(notified)
        await silence(notified)
        workers.start()
        task = await notified.over(number)
        assert task.status == "SUCCEEDED", workers.said()
        cut.mend()
        await until(lambda: "counted as dead" in workers.said())
        await until(lambda: set(read(root(notified, to))) == {"a"})
        assert (root(notified, to) / "a").read_bytes() == content
        await asyncio.to_thread(workers.close)


@ON_POSTGRESQL
async def test_a_worker_without_its_database_ends_on_a_signal(notified, workers, database, tmp_path):
    (tmp_path / "way").mkdir()
    async with way(database, tmp_path / "way") as cut:
        worker = workers.start(cut.database)
        await held(notified, "local", rate=RATE)
        number, _ = await copying(notified, "source", "local")
        await begun(notified, number, 1_000_000)
        cut.cut()
        await until(lambda: "the database cannot be used now" in workers.said())
        worker.terminate()
        assert await until(lambda: worker.poll() is not None), workers.said()
        assert worker.returncode == 0


@pytest.mark.sampled(2)
@ON_SQLITE
@ROUTES
async def test_a_worker_that_was_stopped_at_its_last_step_names_no_file(world, monkeypatch, origin, to):
    """The database has just allowed it."""
    check, reached, go_on = Fence.check, asyncio.Event(), asyncio.Event()

    async def slow(self: Fence, work: object) -> None:
        await check(self, work)
        if not reached.is_set():
            reached.set()
            await go_on.wait()

    monkeypatch.setattr(Fence, "check", slow)
    number, _ = await copying(world, origin, to, 1_000_000)
    async with one_worker(world, monkeypatch) as first:
        await reached.wait()
        content = write(world.source.root, {"a": 1_000_000})["a"]
        async with world.factory.database.write() as connection:
            await Enrolled(connection).remove([first._name], died=True)
        async with working(world):
            assert (await world.over(number)).status == "SUCCEEDED"
            go_on.set()
            await until(lambda: not first._lanes)
    assert read(root(world, to)) == {"a": content}


@ON_SQLITE
async def test_files_that_a_lost_worker_writes_late_are_deleted(world, monkeypatch):
    """A server may execute the last command of the worker late."""
    check, reached, go_on = Fence.check, asyncio.Event(), asyncio.Event()

    async def slow(self: Fence, work: object) -> None:
        if not reached.is_set():
            reached.set()
            await go_on.wait()
        await check(self, work)

    async def swept() -> bool:
        async with world.factory.database.read() as connection:
            return (await connection.execute(sa.text("SELECT unswept FROM tasks"))).scalar_one() is None

    monkeypatch.setattr(Fence, "check", slow)
    number, content = await copying(world, "source", "sink", 1_000_000)
    async with one_worker(world, monkeypatch) as first:
        await reached.wait()
        async with world.factory.database.write() as connection:
            await Enrolled(connection).remove([first._name], died=True)
        async with working(world):
            assert (await world.over(number)).status == "SUCCEEDED"
            go_on.set()
            await until(lambda: not first._lanes)
            await until(swept)
            async with world.factory.database.read() as connection:
                (work,) = await LeftoverStore(connection).begun(number, 0, 2)
            (world.sink.root / earlier("a", work)[-1]).write_bytes(b"late")
            await Worker._beat(first)
            await until(lambda: read(world.sink.root) == {"a": content})


@asynccontextmanager
async def one_worker(world: World, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Worker]:
    """A worker of this process that gets no answers from the database."""
    worker = worker_of(world.factory)
    for routine in ("_beat", "_stop_in_time"):
        monkeypatch.setattr(worker, routine, partial(asyncio.sleep, 0))
    running = asyncio.create_task(worker.run())
    try:
        yield worker
    finally:
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running


def test_a_worker_has_time_to_stop_before_it_counts_as_dead():
    """Intervals for tests: a check each second, and one second to stop."""
    assert fencing.SILENT + 1 + 1 < SILENCE - 1


@ON_SQLITE
async def test_data_is_synced_before_the_fence_check(world, monkeypatch):
    """All fetched bytes are on the disk by then."""
    happened: list[str] = []
    check, sync = Fence.check, Data.sync

    async def held(self: Fence, work: Work) -> None:
        happened.append("asked")
        await check(self, work)

    def synced(self: Data) -> object:
        happened.append("on the disk")
        return sync(self)

    monkeypatch.setattr(Fence, "check", held)
    monkeypatch.setattr(Data, "sync", synced)
    number, content = await copying(world, "source", "local", 1_000_000)
    async with working(world):
        assert (await world.over(number)).status == "SUCCEEDED"
    assert happened[-3:] == ["on the disk", "asked", "on the disk"]
    assert read(world.local) == {"a": content}


async def test_questions_that_come_together_are_one(world, monkeypatch):
    number = await world.submit("TRANSFER", [Item(source=f"/{i}", destination=f"/{i}") for i in range(100)])
    asked, held = [], WorkStore.held

    async def counted(self, worker, leases):
        asked.append(len(leases))
        return await held(self, worker, leases)

    monkeypatch.setattr(WorkStore, "held", counted)
    async with world.factory.database.write() as connection:
        works = WorkStore(connection)
        await Enrolled(connection).enrol("w", "", "here")
        leased = await works.lease(number, "w", ["look"], False, 100, 0, 2e9)
        await works.release("w", {work.lease for work in leased[:10]})
    fence = Fence(world.factory.database)
    fence.begin("w", time.monotonic())
    answers = await asyncio.gather(*map(fence.check, leased), return_exceptions=True)
    assert [isinstance(answer, LeaseLost) for answer in answers] == [True] * 10 + [False] * 90
    assert len(asked) <= 2


async def test_work_begins_without_a_question_only_while_the_worker_is_heard(world, monkeypatch):
    number = await world.submit("TRANSFER", [Item(source="/a", destination="/a")])
    async with world.factory.database.write() as connection:
        await Enrolled(connection).enrol("w", "", "here")
        (work,) = await WorkStore(connection).lease(number, "w", ["look"], False, 1, 0, 2e9)
        await Enrolled(connection).remove(["w"], died=True)
    fence = Fence(world.factory.database)
    fence.begin("w", time.monotonic())
    await fence.check_if_silent(work)
    monkeypatch.setattr(fencing, "FRESH", -1.0)
    with pytest.raises(LeaseLost):
        await fence.check_if_silent(work)
