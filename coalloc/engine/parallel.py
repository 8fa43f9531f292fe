"""Several sessions of one source at once, for protocols that have one stream a session.

The range is dealt out front to back in slices, so that what has arrived stays nearly one piece.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence

from coalloc.engine.base import Deliver, Source, Span
from coalloc.errors import ReplicaChanged, SourceError
from coalloc.intervals import Intervals
from coalloc.model import Stat
from coalloc.urls import redact

__all__ = ["Parallel"]

SMALLEST, LARGEST = 1024 * 1024, 16 * 1024 * 1024
"""Bytes of a slice: each costs a round trip or two, and the last should end together."""


class Parallel(Source):
    """As many `sessions` with one replica as are wished for, each made by `make`, used as one source.

    A session that the server does not grant is done without, as long as the first one works.
    """

    def __init__(self, make: Callable[[], Source], sessions: int) -> None:
        self._first = make()
        super().__init__(self._first.url, self._first.options)
        self._others = [make() for _ in range(sessions - 1)]
        self._joined: dict[Source, bool] = {}
        self._agreed: Stat | None = None

    async def open(self) -> Stat:
        self._joined.clear()
        self._agreed = await self._first.open()
        return self._agreed

    async def fetch(self, span: Span, deliver: Deliver) -> None:
        if self._agreed and not self._agreed.ranged:
            await self._first.fetch(span, deliver)
            return
        if span.start < span.end:
            await _Dealing(span, deliver, 1 + len(self._others)).run(self._first, self._others, self._join)

    async def _join(self, session: Source) -> bool:
        """Connect one more session, if that was not tried before; whether it can be used.

        :raises ReplicaChanged: when it shows another file than the first one did
        """
        if session not in self._joined:
            try:
                stat = await session.open()
            except SourceError:
                self._joined[session] = False
            else:
                if self._agreed and (stat.size, stat.validator) != (self._agreed.size, self._agreed.validator):
                    raise ReplicaChanged(f"{redact(self.url)} changed while it was fetched", "start again")
                self._joined[session] = True
        return self._joined[session]

    async def checksum(self, algorithm: str, start: int, end: int) -> str | None:
        return await self._first.checksum(algorithm, start, end)

    async def close(self) -> None:
        await asyncio.gather(*(session.close() for session in (self._first, *self._others)))
        self._joined.clear()


class _Dealing:
    """One range, dealt out to sessions."""

    def __init__(self, span: Span, deliver: Deliver, sessions: int) -> None:
        self._span = span
        self._deliver = deliver
        self._sessions = sessions
        self._next = span.start
        self._received = Intervals()
        self._tasks: list[asyncio.Task[None]] = []
        self._caller = asyncio.current_task()

    @property
    def _complete(self) -> bool:
        return self._received.covers(self._span.start, self._span.end)

    async def run(self, first: Source, others: Sequence[Source], join: Callable[[Source], Awaitable[bool]]) -> None:
        """Fetch until all is delivered, or the first session fails."""

        async def help_out(session: Source) -> None:
            if self._next < self._span.end and await join(session):
                await self._work(session)

        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(self._work(first)), *(loop.create_task(help_out(each)) for each in others)]
        try:
            await asyncio.wait(self._tasks, return_when=asyncio.FIRST_EXCEPTION)
        finally:
            self._stop(self._tasks)
            results = await asyncio.gather(*self._tasks, return_exceptions=True)
        errors = [result for result in results if isinstance(result, Exception)]
        if errors and not self._complete:
            raise errors[0]

    async def _work(self, session: Source) -> None:
        mine = asyncio.current_task()
        while part := self._deal():

            def take(offset: int, view: memoryview, part: Span = part) -> None:
                self._take(part, offset, view)
                if self._complete:  # others may still fetch what lies beyond an end that was lowered
                    self._stop(task for task in self._tasks if task is not mine)

            await session.fetch(part, take)

    def _deal(self) -> Span | None:
        """The next slice, while there is one."""
        left = self._span.end - self._next
        if left <= 0:
            return None
        size = min(left, LARGEST, max(SMALLEST, left // (2 * self._sessions)))
        part = Span(self._next, self._next + size)
        self._next = part.end
        return part

    def _take(self, part: Span, offset: int, view: memoryview) -> None:
        if self._caller and self._caller.cancelling():  # it has not come round to stopping us
            return
        part.end = min(part.end, max(part.start, self._span.end))
        view = view[: max(0, part.end - offset)]
        if view:
            self._deliver(offset, view)
            self._received.add(offset, offset + len(view))

    @staticmethod
    def _stop(tasks: Iterable[asyncio.Task[None]]) -> None:
        for task in tasks:
            task.cancel()
