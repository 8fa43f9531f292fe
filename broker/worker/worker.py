"""A worker: keeps lanes of tasks open (`opening`), leases work for them, and records progress in the database.

The database has the authoritative state. A worker sends it a heartbeat every second. After `SILENCE` without one, by
the database's clock, other workers count it as dead and free its leases. A worker that cannot reach the database stops
all its lanes before that. If a worker that counts as dead resumes, the database refuses its results, and it begins anew
under another name.
"""

import asyncio
import itertools
import os
import socket
import time
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import suppress
from typing import NamedTuple, Protocol
from uuid import uuid4

import structlog

from broker.errors import Unavailable
from broker.models.lanes import LaneCandidate
from broker.models.tasks import Work, WorkKind
from broker.services.forecasting.decisions import Decisions
from broker.services.forecasting.history import Transfers
from broker.storage.database import Database
from broker.storage.dialects import read_clock
from broker.storage.ended_tasks import LeftoverStore
from broker.storage.lanes import LaneStore
from broker.storage.tasks import TaskStore
from broker.storage.workers import WorkerStore
from broker.worker.lane_opening import LaneOpener, OpenedLane
from broker.worker.leases import FEWEST, Leases, next_batch_size
from broker.worker.owner_rights import OwnerRights
from broker.worker.periodic_checks import PeriodicChecks
from broker.worker.policy.faults import failed, poisoned
from broker.worker.recorder import Recorder
from broker.worker.sweeping import Cleaner, Sweeper
from broker.worker.tuner import Tuner

__all__ = ["Performer", "Worker"]

BEAT = 1.0
LOOK = 5.0
"""Seconds between polls for work, dead workers and passed deadlines."""
TURN = 10.0
"""Seconds after which a lane goes to the next task."""
IDLE = 1.0
"""Seconds for which a task is skipped that has unfinished work but none to lease."""
MOST_LANES = 32
GROUPS: tuple[tuple[WorkKind, ...], ...] = (("look", "expand", "prune"), ("copy", "link", "delete", "remove"))
log = structlog.get_logger("broker.worker")


class Performer(Cleaner, Protocol):
    """The executor of work items of any kind."""

    async def perform(self, task: LaneCandidate, batch: Sequence[Work], recorder: Recorder) -> None:
        """Do a batch of work items and report each result. When cancelled, stop within a second."""
        ...

    async def close(self) -> None:
        """Close all sessions."""
        ...


class WorkerLane(NamedTuple):
    """A lane that this worker drives."""

    opened: OpenedLane
    driver: asyncio.Task[None]


class Worker:
    """One worker of a site, for the site's queue and the queue for all sites."""

    def __init__(
        self,
        database: Database,
        history: Transfers,
        decisions: Decisions,
        performer: Performer,
        site: str = "",
    ) -> None:
        self._database = database
        self._performer = performer
        self._recorder = Recorder(database, history, decisions, self._due_in)
        self._tuner = Tuner(database)
        self._site = site
        self._name = ""
        self._opener = LaneOpener(database, self._tuner, self._queues, lambda: self._name, self.wake)
        self._lanes: dict[int, WorkerLane] = {}
        self._unconfirmed: set[str] = set()
        """Tasks of all lanes that were open since the database last confirmed that this worker is alive."""
        self._idle: set[str] = set()
        self._leases = Leases(database, self._recorder)
        self._checks = PeriodicChecks(database)
        self._opening = asyncio.Lock()
        self._woken = asyncio.Event()

    def wake(self) -> None:
        """Look for work now."""
        self._woken.set()

    def _due_in(self, task: str, seconds: float) -> None:
        asyncio.get_running_loop().call_later(seconds, self._due, task)

    def _due(self, task: str) -> None:
        """Mark a task as having work, and wake the worker."""
        self._idle.discard(task)
        self.wake()

    async def run(self) -> None:
        """Work until cancelled; then give back all unfinished work."""
        beating = [asyncio.create_task(self._every(*each)) for each in self._routine]
        try:
            while True:
                if not self._name:
                    await self._persist(self._enrol)
                if self._name:
                    await self._persist(self._fill)
                with suppress(TimeoutError):
                    async with asyncio.timeout(LOOK):
                        await self._woken.wait()
                self._woken.clear()
        finally:
            for task in beating:
                task.cancel()
            await self._shut_down()

    @property
    def _routine(self) -> Sequence[tuple[float, Callable[[], Awaitable[None]]]]:
        sweep = Sweeper(self._database, self._performer, self._queues).sweep
        each_second = (self._beat, self._stop_in_time, self._settle, self._obey, sweep)
        return *((BEAT, work) for work in each_second), (LOOK, self._look)

    async def _every(self, seconds: float, work: Callable[[], Awaitable[None]]) -> None:
        while True:
            await asyncio.sleep(seconds)
            await self._persist(work)

    async def _persist(self, work: Callable[[], Awaitable[None]]) -> None:
        """Call `work` and log its errors, so that a failure of the database does not end the worker."""
        try:
            await work()
        except Unavailable as error:
            log.warning("the database cannot be used now", error=error.message)
            await asyncio.sleep(BEAT)
        except Exception:
            log.exception("internal error of a worker")
            await asyncio.sleep(BEAT)

    async def _enrol(self) -> None:
        name, place = str(uuid4()), f"{socket.gethostname()}:{os.getpid()}"
        sent = time.monotonic()
        async with self._database.write() as connection:
            await WorkerStore(connection).enrol(name, self._site, place)
        self._name = name
        self._leases.begin(name, sent)

    async def _shut_down(self) -> None:
        """Stop all lanes, record results, and give back unfinished work."""
        await self._stop(list(self._lanes))
        with suppress(Unavailable):
            with suppress(Unavailable):
                await self._leases.settle(())
            async with self._database.write() as connection:
                await WorkerStore(connection).remove([self._name])
        await self._performer.close()

    async def _beat(self) -> None:
        """Send a heartbeat to the database, in a transaction that waits for no other lock."""
        if not (name := self._name):
            return
        sent = time.monotonic()
        async with self._database.write() as connection:
            alive = await WorkerStore(connection).beat(name)
        if alive:
            self._recorder.fence.contacted(sent)
            self._unconfirmed = {lane.opened.candidate.task for lane in self._lanes.values()}
        else:
            log.warning("this worker counted as dead; it starts again", worker=name)
            await self._begin_anew()

    async def _stop_in_time(self) -> None:
        """Stop all lanes before their leases end if the database does not answer; this does not use the database."""
        running = [lane.driver for lane in self._lanes.values() if not lane.driver.cancelling()]
        if running and self._recorder.fence.silent:
            log.warning("the database does not answer: all lanes are stopped", lanes=len(running))
            for driver in running:
                driver.cancel()

    async def _settle(self) -> None:
        """Write results, and give back the owed leases."""
        await self._leases.settle(())

    async def _begin_anew(self) -> None:
        """Stop all lanes, whose leases are lost, and begin under a new name.

        Ended tasks of these lanes, and of lanes that ended meanwhile, are swept again, since the lanes may have written
        data after the end.
        """
        await self._stop(list(self._lanes))
        async with self._database.write() as connection:
            await LeftoverStore(connection).again(self._unconfirmed, await read_clock(connection))
        await self._enrol()
        self._unconfirmed.clear()

    async def _obey(self) -> None:
        """Stop the lanes of tasks that have ended, are paused, or have a collection where they are paused.

        Lanes with guest collections also stop when the rights there change, so that guests lose access at once. A lane
        that is opened later gets the new rights.
        """
        lanes = dict(self._lanes)
        if not lanes:
            return
        async with self._database.read() as connection:
            stopped = await TaskStore(connection).stopped({lane.opened.candidate.task for lane in lanes.values()})
            changed = {
                number
                for number, lane in lanes.items()
                if (had := lane.opened.shared) is not None
                and had != (await OwnerRights.of(connection, lane.opened.candidate)).shared
            }
        await self._stop(
            [number for number, lane in lanes.items() if number in changed or lane.opened.candidate.task in stopped]
        )

    async def _look(self) -> None:
        """Remove leases and lanes that only the database has, do the periodic checks, and tune the numbers of lanes."""
        await self._leases.reconcile()
        async with self._opening, self._database.write() as connection:
            await LaneStore(connection).keep(self._name, self._lanes.keys())
        await self._checks.do(self._name, {lane.opened.candidate.task for lane in self._lanes.values()})
        pair_of_task = {lane.opened.candidate.task: lane.opened.candidate.pair for lane in self._lanes.values()}
        for task, done in self._recorder.taken().items():
            if task in pair_of_task:
                self._tuner.saw(pair_of_task[task], done)
        await self._tuner.step([lane.opened.candidate.pair for lane in self._lanes.values()])
        self.wake()

    async def _fill(self) -> None:
        """Open lanes while there are tasks to open them for."""
        while len(self._lanes) < MOST_LANES and not self._recorder.fence.silent:
            async with self._opening:
                lane = await self._opener.open(self._idle)
                if lane is None:
                    return
                self._begin(lane)
            log.debug("a lane is open", task=lane.candidate.task)

    def _begin(self, lane: OpenedLane) -> None:
        """Begin to do the work of a lane."""
        driver = asyncio.create_task(self._drive(lane.candidate, lane.number))
        self._lanes[lane.number] = WorkerLane(lane, driver)
        self._unconfirmed.add(lane.candidate.task)
        driver.add_done_callback(lambda _: self._driven(lane.number))

    @property
    def _queues(self) -> Collection[str]:
        return {"", self._site}

    def _driven(self, number: int) -> None:
        self._lanes.pop(number, None)
        self.wake()

    async def _drive(self, candidate: LaneCandidate, number: int) -> None:
        """Do work of one task until the lane's turn is over or no free work is left."""
        until, turns, most = time.monotonic() + TURN, itertools.cycle((GROUPS, GROUPS[::-1])), FEWEST
        try:
            while (began := time.monotonic()) < until and (
                batch := await self._lease(candidate.task, next(turns), number % 2 == 0, most)
            ):
                await self._batch(candidate, batch)
                most = next_batch_size(len(batch), time.monotonic() - began)
                if batch[0].kind in GROUPS[0]:  # let other lanes take the new work
                    self._due(candidate.task)
        except Unavailable as error:
            log.warning("the database cannot be used now", error=error.message)
        except Exception:
            log.exception("internal error of a lane", task=candidate.task)
        finally:
            with suppress(Unavailable):
                await asyncio.shield(self._leases.settle((), number))

    async def _batch(self, candidate: LaneCandidate, batch: Sequence[Work]) -> None:
        hopeless = [result for work in batch if (result := poisoned(work))]
        for result in hopeless:
            self._recorder.report(result)
        lost = {result.work.id for result in hopeless}
        try:
            await self._performer.perform(candidate, [work for work in batch if work.id not in lost], self._recorder)
        except Exception as defect:
            log.exception("work failed", task=candidate.task)
            for work in batch:
                self._recorder.report(failed(work, defect, candidate.options))
        finally:
            await asyncio.shield(self._leases.settle(batch))

    async def _lease(
        self, task: str, groups: Sequence[Collection[WorkKind]], large_first: bool, most: int
    ) -> list[Work]:
        """Lease work of a task; without any, skip the task for `IDLE` seconds or until new work is found."""
        batch = await self._leases.lease(task, groups, large_first, most)
        if not batch:
            self._idle.add(task)
            self._due_in(task, IDLE)
        return batch

    async def _stop(self, numbers: Sequence[int]) -> None:
        drivers = [self._lanes[number].driver for number in numbers if number in self._lanes]
        for driver in drivers:
            driver.cancel()
        await asyncio.gather(*drivers, return_exceptions=True)
