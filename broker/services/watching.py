"""Tasks as they go: who watches one is told when something changed. However many watch, each tick is one query."""

import asyncio
import hashlib
import time
from collections import Counter, deque
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import contextmanager, suppress

import structlog

from broker.errors import TooManyRequests, Unavailable
from broker.models.access import Caller
from broker.models.collections import Collection
from broker.models.submissions import TaskRecord
from broker.models.tasks import Task
from broker.storage.database import Database
from broker.storage.tasks import Tasks as Stored

__all__ = ["Watching", "version"]

TICK = 0.5
"""Seconds between looks."""
WINDOW = 8.0
"""Seconds over which a rate is what it is now; workers tell what was moved about once a second."""
HEARTBEAT = 15.0
"""Seconds of silence after which proxies and watchers are told that there is still somebody."""
LONGEST = 600.0
"""Seconds after which a watcher has to come again, and say once more who it is."""
MOST = 100
"""Streams that one subject may have at once."""
log = structlog.get_logger("broker.watching")


def version(record: TaskRecord) -> str:
    """What tells two states of a task apart."""
    return hashlib.blake2b(record.model_dump_json().encode(), digest_size=8).hexdigest()


class Watched:
    """One task, for all who watch it."""

    def __init__(self, task: Task, collections: Mapping[str, Collection], now: float) -> None:
        self._collections = collections
        self._moved = deque([(now, task.bytes_transferred)])
        self._next = asyncio.Event()
        self.watchers = 0
        self.record = TaskRecord.of(task, collections, now)

    def see(self, task: Task, now: float) -> None:
        """What it is now; who waits is told if that is news."""
        self._moved.append((now, task.bytes_transferred))
        while self._moved[1][0] <= now - WINDOW:
            self._moved.popleft()
        since, before = self._moved[0]
        rate = max(0, task.bytes_transferred - before) / (now - since) if now > since else 0.0
        record = TaskRecord.of(task, self._collections, now, rate)
        if record != self.record:
            self.record = record
            self.tell()

    def tell(self) -> None:
        """Let all who wait go on."""
        self._next.set()
        self._next = asyncio.Event()

    async def news(self, seconds: float) -> None:
        """Wait for news, at most so long."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._next.wait()


class Watching:
    """All tasks that are watched in this process."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._watched: dict[str, Watched] = {}
        self._callers: Counter[str] = Counter()
        self._closed = asyncio.Event()

    def watch(
        self, caller: Caller, task: Task, collections: Mapping[str, Collection], seen: str = ""
    ) -> AsyncGenerator[TaskRecord | None, None]:
        """A task as it goes: at once, unless its version was seen, then whenever something changed; None as heartbeat.

        Ends after its last state, after `LONGEST`, and when the broker is to end.

        :raises TooManyRequests: when the caller watches too many
        """
        self._check(caller)
        return self._watch(caller.subject, Watched(task, collections, time.time()), task.id, seen)

    async def _watch(
        self, subject: str, fresh: Watched, number: str, seen: str
    ) -> AsyncGenerator[TaskRecord | None, None]:
        watched = self._watched.setdefault(number, fresh)
        watched.watchers += 1
        until, heard = time.monotonic() + LONGEST, time.monotonic()
        try:
            with self._counted(subject):
                while not self._closed.is_set() and time.monotonic() < until:
                    record = watched.record
                    if version(record) != seen:
                        seen, heard = version(record), time.monotonic()
                        yield record
                    elif time.monotonic() - heard >= HEARTBEAT:
                        heard = time.monotonic()
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
        """A moment at once, and one each so many seconds, for who looks again and again at something else.

        Ends after `LONGEST`, and when the broker is to end.

        :raises TooManyRequests: when the caller watches too many
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
        """Look at all that is watched, again and again, until cancelled."""
        while True:
            await asyncio.sleep(TICK)
            if self._watched:
                try:
                    await self._look()
                except Unavailable as error:
                    log.warning("the database cannot be used now", error=error.message)
                except Exception:  # else nobody would ever hear of anything again
                    log.exception("tasks cannot be looked at")

    async def _look(self) -> None:
        async with self._database.read() as connection:
            found = await Stored(connection).some(list(self._watched))
        now = time.time()
        for task in found:
            if watched := self._watched.get(task.id):
                watched.see(task, now)

    def close(self) -> None:
        """Let all who watch go: the broker is to end."""
        self._closed.set()
        for watched in self._watched.values():
            watched.tell()
