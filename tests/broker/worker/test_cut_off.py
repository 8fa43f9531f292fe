"""Workers whose connection to PostgreSQL is cut, in one or both directions."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
import sqlalchemy as sa

from broker.errors import Unavailable
from broker.factory import Announcements
from broker.models.lanes import LaneCandidate
from broker.models.tasks import Details, Event, Work
from broker.models.work import PlannedWork, WorkResult
from broker.services.auth.quotas import Quotas
from broker.services.forecasting.decisions import Decisions
from broker.services.forecasting.history import Transfers
from broker.services.network.places import Places
from broker.services.tasks.tasks import Tasks
from broker.storage.database import Database, addressed
from broker.storage.lanes import LaneStore
from broker.storage.work import WorkStore
from broker.storage.workers import WorkerStore
from broker.worker.fence import LeaseLost
from broker.worker.recorder import Recorder
from tests.broker.worker.test_work import ANN, Ready, over, task, working
from tests.support.waiting import until
from tests.support.workers import Way, way

pytestmark = pytest.mark.parametrize("database", ["postgresql"], indirect=True)
NUMBERED = b"SET flushed"
"""Text in the last statement of a transaction that records results."""


class Endless(Ready):
    """An executor that never finishes; when it is stopped, it asks whether the file may still be renamed."""

    def __init__(self) -> None:
        super().__init__()
        self.stopped = asyncio.Event()
        self.said: list[BaseException | None] = []

    async def perform(self, task: LaneCandidate, batch: Sequence[Work], recorder: Recorder) -> None:
        self.begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.stopped.set()
            self.asking = asyncio.create_task(self._name(batch, recorder))

    async def _name(self, batch: Sequence[Work], recorder: Recorder) -> None:
        try:
            await recorder.fence.check(batch[0])
        except LeaseLost as error:
            self.said.append(error)
        else:
            self.said.append(None)


class After(Ready):
    """An executor that records whether another worker had stopped before it began."""

    def __init__(self, other: Endless) -> None:
        super().__init__()
        self._other = other
        self.in_time: list[bool] = []

    async def perform(self, task: LaneCandidate, batch: Sequence[Work], recorder: Recorder) -> None:
        self.in_time.append(self._other.stopped.is_set())
        await super().perform(task, batch, recorder)


@pytest.fixture
async def opened(database: str) -> AsyncIterator[Database]:
    opened = Database(addressed(database))
    yield opened
    await opened.close()


@pytest.fixture
async def cut(database: str, tmp_path: Path) -> AsyncIterator[Way]:
    async with way(database, tmp_path) as cut:
        yield cut


@pytest.fixture
async def far(cut: Way) -> AsyncIterator[Database]:
    """The database behind that proxy."""
    far = Database(addressed(cut.database))
    yield far
    cut.mend()
    await far.close()


@contextmanager
def stalled(cut: Way) -> Iterator[None]:
    """Block all data for a while."""
    cut.stall()
    try:
        yield
    finally:
        cut.mend()


async def test_a_worker_that_is_cut_off_stops_before_its_work_passes_on(opened, far, cut):
    tasks, first = Tasks(opened, Announcements()), Endless()
    number, _ = await tasks.submit(task("/a"))
    async with working(far, first) as worker:
        await first.begun.wait()
        name, second = worker._name, After(first)
        with stalled(cut):
            async with working(opened, second):
                await until(lambda: over(tasks, number))
        assert second.in_time == [True]
        await until(lambda: worker._name != name)
        await until(lambda: first.said)
    assert isinstance(first.said[0], LeaseLost)
    assert (await tasks.one(ANN, number)).status == "SUCCEEDED"


async def test_a_worker_that_was_cut_off_for_a_moment_goes_on(opened, far, cut):
    """A worker that reconnects in time keeps its leases."""
    tasks, first = Tasks(opened, Announcements()), Endless()
    number, _ = await tasks.submit(task("/a"))
    async with working(far, first) as worker:
        await first.begun.wait()
        name = worker._name
        with stalled(cut):
            await first.stopped.wait()
            first.begun.clear()
        await first.begun.wait()
        assert worker._name == name
    async with opened.read() as connection:
        asked = sa.text("SELECT attempt, lost, leases FROM work")
        assert tuple((await connection.execute(asked)).one()) == (0, 0, 2)
    assert (await tasks.one(ANN, number)).status == "ACTIVE"


def recorder_of(database: Database) -> Recorder:
    places = Places(database)
    history = Transfers(database, places, Quotas(10**6), Announcements())
    return Recorder(database, history, Decisions(database, places), lambda *_: None)


async def test_a_write_whose_answer_is_lost_counts_once(opened, far, cut):
    number, _ = await Tasks(opened, Announcements()).submit(task("/a", "/b"))
    async with far.write() as connection:
        await WorkerStore(connection).enrol("w", "", "here")
        a, b = await WorkStore(connection).lease(number, "w", ["look"], True, 10, 10, time.time())
    recorder = recorder_of(far)

    def did(work: Work) -> None:
        recorder.moved(number, 100)
        recorder.note(number, Event(time.time(), "TOLD", False, "told", work.source))
        recorder.report(WorkResult(work, "succeeded", counts={"bytes_checksummed": 7}))

    did(a)
    cut.lose(NUMBERED)
    with pytest.raises(Unavailable):
        await recorder.flush("w")
    assert cut.lost.is_set()
    did(b)
    with suppress(Unavailable):  # the pool finds out which of its connections are gone
        await recorder.flush("w")
    assert {a.lease, b.lease} >= await recorder.flush("w")
    known = await Tasks(opened, Announcements()).one(ANN, number)
    assert (known.succeeded, known.bytes_transferred, known.bytes_checksummed) == (2, 200, 14)
    events, _ = await Tasks(opened, Announcements()).events(ANN, number, None, 10, 0)
    assert sorted(event.code for event in events) == ["SUCCEEDED", "TOLD", "TOLD"]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("commits", [True, False])
@pytest.mark.parametrize("after", [NUMBERED, b"cannot record the result"], ids=["progress", "error"])
async def test_all_results_beside_an_unwritable_one_count_once_when_the_database_is_lost(
    opened, far, cut, after, commits
):
    number, _ = await Tasks(opened, Announcements()).submit(task("/a", "/b", "/c"))
    async with far.write() as connection:
        await WorkerStore(connection).enrol("w", "", "here")
        batch = await WorkStore(connection).lease(number, "w", ["look"], True, 10, 10, time.time())
    recorder = recorder_of(far)
    unwritable = PlannedWork("copy", "/x", "/x", 1, Details(modified=object()))
    for work in batch:
        children = (unwritable,) if work.source == "/b" else ()
        recorder.report(WorkResult(work, "succeeded", counts={"bytes_checksummed": 7}, children=children))
        recorder.moved(number, 100)
    recorder.note(number, Event(time.time(), "TOLD", False, "told", "/a"))
    cut.lose(after, commits)
    recorded = await flushed(recorder)
    assert cut.lost.is_set()
    assert recorded <= {work.lease for work in batch}
    known = await Tasks(opened, Announcements()).one(ANN, number)
    assert (known.succeeded, known.failed, known.bytes_transferred, known.bytes_checksummed) == (2, 1, 300, 14)
    events, _ = await Tasks(opened, Announcements()).events(ANN, number, None, 10, 0)
    assert sorted(event.code for event in events) == ["FAILED", "TOLD", "UNKNOWN"]


async def flushed(recorder: Recorder) -> set[tuple[int, int]]:
    """Flush until the database is available; return the leases of the last flush."""
    for _ in range(5):
        with suppress(Unavailable):
            return await recorder.flush("w")
    raise AssertionError("the database stays unavailable")


async def test_a_lane_whose_opening_was_not_confirmed_is_closed(opened, far, cut):
    """Otherwise the lease would count for the worker's whole life, and nothing of its task would be removed."""
    tasks, performer = Tasks(opened, Announcements()), Ready()
    async with working(far, performer) as worker:
        await until(lambda: worker._name)
        cut.lose(b"INSERT INTO lanes")
        number, _ = await tasks.submit(task("/a"))
        await until(lambda: over(tasks, number))
        assert cut.lost.is_set()
        await until(lambda: no_lanes(opened))
    events, _ = await tasks.events(ANN, number, None, 10, 0)
    assert [event.code for event in events] == ["SUCCEEDED", "STARTED"]


async def no_lanes(database: Database) -> bool:
    async with database.read() as connection:
        return not await LaneStore(connection).open()
