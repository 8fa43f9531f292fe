"""Live states of tasks, for streams and reports. One query per tick serves all watchers of a process."""

import asyncio
import hashlib
import time
from collections import Counter, deque
from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress

import structlog

from broker.errors import TooManyRequests, Unavailable
from broker.models.callers import Caller
from broker.models.collections import Collection
from broker.models.submissions import TaskRecord
from broker.models.tasks import Task
from broker.storage.database import Database
from broker.storage.tasks import TaskStore as Stored

__all__ = ["Pace", "Watching", "version"]

TICK = 0.5
"""Seconds between queries."""
WINDOW = 8.0
"""Seconds over which the current rate is averaged; workers report their progress about once a second."""
HEARTBEAT = 15.0
"""Seconds without a change after which a heartbeat keeps the stream alive."""
LONGEST = 600.0
"""Seconds after which a stream ends, so that the watcher has to connect and authenticate again."""
MOST = 100
"""Most streams of one subject at once."""
SHORTEST = 1.5
"""Shortest time in seconds from which a rate is computed."""
FORGOTTEN = 60.0
"""Seconds without a request after which the progress of a task is forgotten."""
log = structlog.get_logger("broker.watching")


def version(record: TaskRecord) -> str:
    """Return the version of a task's record: a hash of its content."""
    return hashlib.blake2b(record.model_dump_json().encode(), digest_size=8).hexdigest()


class Watched:
    """The state of one task, shared by all its watchers."""

    def __init__(self, task: Task, collections: Mapping[str, Collection], now: float) -> None:
        self._collections = collections
        self._moved = deque([(now, task.bytes_transferred)])
        self._next = asyncio.Event()
        self.watchers = 0
        self.record = TaskRecord.of(task, collections, now)

    def see(self, task: Task, now: float) -> None:
        """Update the state of the task; wake all watchers if it has changed."""
        self._moved.append((now, task.bytes_transferred))
        while self._moved[1][0] <= now - WINDOW:
            self._moved.popleft()
        since, before = self._moved[0]
        rate = max(0, task.bytes_transferred - before) / (now - since) if now > since else 0.0
        record = TaskRecord.of(task, self._collections, now, rate)
        if record != self.record:
            self.record = record
            self.wake()

    def wake(self) -> None:
        """Wake all watchers."""
        self._next.set()
        self._next = asyncio.Event()

    async def news(self, seconds: float) -> None:
        """Wait for a change, for at most `seconds`."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._next.wait()


class Watching:
    """The watched tasks of this process."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._watched: dict[str, Watched] = {}
        self._callers: Counter[str] = Counter()
        self._closed = asyncio.Event()

    def watch(
        self, caller: Caller, task: Task, collections: Mapping[str, Collection], seen: str = ""
    ) -> AsyncGenerator[TaskRecord | None, None]:
        """Return a stream of the states of a task: the current state, then each new one; None is a heartbeat.

        The stream ends after the final state, after `LONGEST` seconds, and when the broker shuts down.

        :param seen: version of the state that the caller has, which is not sent again
        :raises TooManyRequests: when the caller has too many streams
        """
        self._check(caller)
        return self._watch(caller.subject, Watched(task, collections, time.time()), task.id, seen)

    async def _watch(
        self, subject: str, fresh: Watched, number: str, seen: str
    ) -> AsyncGenerator[TaskRecord | None, None]:
        watched = self._watched.setdefault(number, fresh)
        watched.watchers += 1
        until, last_sent = time.monotonic() + LONGEST, time.monotonic()
        try:
            with self._counted(subject):
                while not self._closed.is_set() and time.monotonic() < until:
                    record = watched.record
                    if version(record) != seen:
                        seen, last_sent = version(record), time.monotonic()
                        yield record
                    elif time.monotonic() - last_sent >= HEARTBEAT:
                        last_sent = time.monotonic()
                        yield None
                    if record.completed_at is not None:
                        return
                    if watched.record is record:
                        await watched.news(HEARTBEAT)
        finally:
            watched.watchers -= 1
            if not watched.watchers:
                del self._watched[number]

    def beats(self, caller: Caller, seconds: float) -> AsyncGenerator[None, None]:
        """Return a stream that yields at once and then every `seconds`, for callers that poll other data.

        The stream ends after `LONGEST` seconds, and when the broker shuts down.

        :raises TooManyRequests: when the caller has too many streams
        """
        self._check(caller)
        return self._beats(caller.subject, seconds)

    async def _beats(self, subject: str, seconds: float) -> AsyncGenerator[None, None]:
        until = time.monotonic() + LONGEST
        with self._counted(subject):
            while not self._closed.is_set() and time.monotonic() < until:
                yield
                with suppress(TimeoutError):
                    async with asyncio.timeout(seconds):
                        await self._closed.wait()

    def _check(self, caller: Caller) -> None:
        if self._callers[caller.subject] >= MOST:
            raise TooManyRequests(f"{caller.subject} has {MOST} streams already", "leave some", retry_after=10)

    @contextmanager
    def _counted(self, subject: str) -> Iterator[None]:
        self._callers[subject] += 1
        try:
            yield
        finally:
            self._callers -= Counter([subject])

    async def look(self) -> None:
        """Query all watched tasks once per tick, until cancelled."""
        while True:
            await asyncio.sleep(TICK)
            if self._watched:
                try:
                    await self._look()
                except Unavailable as error:
                    log.warning("the database cannot be used now", error=error.message)
                except Exception:  # otherwise an error would stop the loop silently
                    log.exception("failed to read tasks; trying again")

    async def _look(self) -> None:
        async with self._database.read() as connection:
            found = await Stored(connection).some(list(self._watched))
        now = time.time()
        for task in found:
            if watched := self._watched.get(task.id):
                watched.see(task, now)

    def close(self) -> None:
        """End all streams, because the broker shuts down."""
        self._closed.set()
        for watched in self._watched.values():
            watched.wake()


class Pace:
    """The recent progress of tasks, as observed by this process."""

    def __init__(self) -> None:
        self._seen: dict[str, deque[tuple[float, int]]] = {}

    def rates(self, tasks: Iterable[Task]) -> Mapping[str, float]:
        """Return the rates of tasks by id, in bytes per second; tasks without earlier calls are left out."""
        now = time.monotonic()
        self._seen = {number: moved for number, moved in self._seen.items() if moved[-1][0] > now - FORGOTTEN}
        found = {}
        for task in tasks:
            moved = self._seen.setdefault(task.id, deque())
            moved.append((now, task.bytes_transferred))
            while len(moved) > 2 and moved[1][0] <= now - WINDOW:
                moved.popleft()
            since, before = moved[0]
            if now - since >= SHORTEST:
                found[task.id] = max(0, task.bytes_transferred - before) / (now - since)
        return found
