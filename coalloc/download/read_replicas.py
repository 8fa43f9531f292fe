"""The replicas of a file that is read at random: the one for the next read, and what becomes of those that fail."""

import asyncio
from collections import Counter
from collections.abc import Coroutine, Sequence
from math import inf
from random import Random
from typing import Any

from coalloc.download.agreement import unusable
from coalloc.download.read_forecasts import UNKNOWN_SECONDS, HedgeBudget, ReadForecast, ReadForecasts
from coalloc.download.replica_sessions import MOST, SILENCE, ReplicaRead, ReplicaSessions
from coalloc.errors import CoallocError, NoSuchFile, ReplicaChanged, SourceError
from coalloc.safe_text import redact
from coalloc.schedule.pauses import TRIES, pause_seconds

__all__ = ["ReadReplicas"]

EXPLORING = 128
"""One of so many reads goes to another replica than the expected fastest, so that forecasts stay true."""

Failures = Counter[ReplicaSessions]


class ReadReplicas:
    """The replicas, and the forecasts by which one is chosen.

    :ivar contradiction: the error that ends all reads: two replicas are different files, and nothing tells which is
        right
    """

    def __init__(self, replicas: Sequence[ReplicaSessions], forecasts: ReadForecasts) -> None:
        self.replicas = replicas
        self.forecasts = forecasts
        self.budget = HedgeBudget()
        self.contradiction: CoallocError | None = None
        self.places = asyncio.Semaphore(MOST * len(replicas))
        """One for each read under way: it is decided late which replica gets a read."""
        self.time = asyncio.get_running_loop().time
        self._count = 0
        self._has_failed = False
        """Whether a read has ended because no replica was left."""
        self._chance = Random()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._closed = False

    @property
    def at_work(self) -> bool:
        """Return whether sessions are being used or connected."""
        return bool(self._tasks)

    def begin(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Begin a task, which `close` ends."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # mark as retrieved: nobody may wait for the task

    async def read(self, read: ReplicaRead) -> bytes:
        """Return the bytes of a read. If it loses its session, connect another one for the next read.

        :raises CoallocError: if it fails
        """
        replica = read.replica
        try:
            return await replica.read(read)
        finally:
            if read.late and not (replica.has_sessions or replica.dropped or self._closed):
                self.begin(self.connect(replica))

    async def connect(self, replica: ReplicaSessions) -> None:
        """Connect to a replica; note a failure."""
        try:
            await replica.connect()
        except CoallocError as error:
            self.note(replica, error)

    def connect_again(self) -> None:
        """Begin to connect replicas that failed before, when their pause is over.

        After a read for which none was left, replicas that were dropped are used again, unless they have changed.
        """
        if self._has_failed:
            self._has_failed = False
            for replica in self.replicas:
                replica.dropped = isinstance(replica.error, ReplicaChanged)
        for replica in self.replicas:
            if replica.stat is None and replica.error and not (replica.dropped or self._pauses(replica)):
                replica.error = None
                self.begin(self.connect(replica))

    def note(self, replica: ReplicaSessions, error: BaseException) -> None:
        """Drop a replica, or let it pause, after a failure.

        :raises BaseException: the error, if it is not of this replica alone
        """
        if not isinstance(error, SourceError):
            if isinstance(error, CoallocError):
                self.contradiction = error
            raise error
        replica.error = error
        replica.dropped |= error.permanent
        if not self._pauses(replica):  # several reads may fail at once
            replica.failures += 1
            replica.pausing_until = self.time() + pause_seconds(replica.failures, error.retry_after, self._chance)

    def no_source(self) -> CoallocError:
        """Return the error for reads when no replica is left."""
        errors = {i: each.error for i, each in enumerate(self.replicas) if each.error}
        for kind in (NoSuchFile, ReplicaChanged):
            if errors and all(isinstance(each, kind) for each in errors.values()):
                return errors[min(errors)]
        return unusable([redact(each.url) for each in self.replicas], errors)

    def _pauses(self, replica: ReplicaSessions) -> bool:
        return replica.pausing_until > self.time()

    async def first(self, nbytes: int, failures: Failures) -> ReplicaSessions:
        """Return the replica for a read, after waiting for one if all pause.

        :param failures: failures in this read
        :raises CoallocError: if there is none
        """
        while True:
            if self.contradiction:
                raise self.contradiction
            possible = [each for each in self.replicas if not each.dropped and failures[each] < TRIES]
            if not possible:
                self._has_failed = True
                raise self.no_source()
            ready = [each for each in possible if not self._pauses(each)]
            if ready:
                connected = [each for each in ready if each.stat]
                return self._best(nbytes, connected or ready)
            await asyncio.sleep(min(each.pausing_until for each in possible) - self.time())

    def second(self, read: ReplicaRead) -> ReplicaSessions | None:
        """Return the replica that is asked, too, when a read is late; None if there is none, or no budget for it.

        A read that is as late as a failed one needs no budget: its server may send a byte now and then.
        """
        ready = [each for each in self._others(read) if each.busy < MOST]
        failed = self.time() > read.begun_at + SILENCE
        if not ready or not (self.budget.take(read.nbytes) or failed):
            return None
        return min(ready, key=lambda each: self._cost(each, read.nbytes))

    def _others(self, read: ReplicaRead) -> list[ReplicaSessions]:
        """Return the connected replicas other than that of a read."""
        connected = [each for each in self.replicas if each.stat and each is not read.replica]
        return [each for each in connected if not (each.dropped or self._pauses(each))]

    def _best(self, nbytes: int, ready: Sequence[ReplicaSessions]) -> ReplicaSessions:
        self._count += 1
        if self._count % EXPLORING == 0:
            return ready[self._count // EXPLORING % len(ready)]
        return min(ready, key=lambda each: self._cost(each, nbytes))

    def _cost(self, replica: ReplicaSessions, nbytes: int) -> float:
        """Return the expected seconds of one more read; 0 if nothing is known, so that the replica is tried."""
        forecast = self._forecast(replica, nbytes)
        if replica.busy >= MOST:
            return inf
        return forecast.usual * (1 + replica.busy) if forecast else 0.0

    def _forecast(self, replica: ReplicaSessions, nbytes: int) -> ReadForecast | None:
        trip = replica.opening_seconds if replica.stat else None
        return self.forecasts.forecast(replica.server, nbytes, replica.estimate, trip)

    def late(self, read: ReplicaRead) -> float:
        """Return the seconds after which a read is late: another replica would probably have answered by then."""
        known = [self._forecast(each, read.nbytes) for each in (read.replica, *self._others(read))]
        return min((forecast.late for forecast in known if forecast), default=UNKNOWN_SECONDS)

    async def close(self) -> None:
        """End all tasks, and close all sessions."""
        self._closed = True
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.gather(*(each.close() for each in self.replicas))
