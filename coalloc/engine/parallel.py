"""One replica through as many sessions as its rate asks for, where a protocol has one stream a session.

A single session is given the whole range at once. Several are given a part each; one that is free, because it has
delivered its part or has only now connected, takes half of the longest that is under way. So there are few parts,
as each costs round trips and begins slowly, and all end together. How many sessions are worth having is for the
scheduler to say.
"""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial

from coalloc.engine.base import Deliver, Source, Span
from coalloc.errors import ReplicaChanged, SourceError
from coalloc.intervals import Intervals
from coalloc.model import Stat
from coalloc.urls import redact

__all__ = ["Parallel"]

SMALLEST, LARGEST = 512 * 1024, 64 * 1024 * 1024
"""Bytes of a part where there are several: it should be worth its set-up, and end soon if the session is recalled."""
LEAST_CUT = 64 * 1024
"""Bytes that a session must still have to deliver for a free one to take half of them."""
WORTH = 8
"""Set-ups that a part must still last to be cut: one, and TCP's slow start, for half of it."""


class Parallel(Source):
    """One or more sessions with one replica, each made by `make`, used as one source.

    A session that the server does not grant, or that is lost, is done without as long as another one works. One that
    is recalled ends with its part.

    :param streams: how many sessions to have, until `widen` says more
    """

    def __init__(self, make: Callable[[], Source], streams: int = 1) -> None:
        self._make = make
        self._sessions = [make()]
        super().__init__(self._sessions[0].url, self._sessions[0].options)
        self._streams = streams
        self._joining: dict[Source, asyncio.Task[Stat | None]] = {}
        self._agreed: Stat | None = None
        self._dealing: _Dealing | None = None

    async def open(self) -> Stat:
        await self._forget_joined()
        self._agreed = await self._sessions[0].open()
        return self._agreed

    def widen(self, streams: int) -> None:
        self._streams = max(self._streams, streams)
        if self._dealing:
            self._invite(self._dealing)

    async def fetch(self, span: Span, deliver: Deliver) -> None:
        if self._agreed and not self._agreed.ranged:
            await self._sessions[0].fetch(span, deliver)
            return
        if span.start >= span.end:
            return
        self._dealing = _Dealing(span, deliver, self._join)
        try:
            self._invite(self._dealing)
            await self._dealing.run()
        finally:
            self._dealing = None

    def _invite(self, dealing: "_Dealing") -> None:
        while len(self._sessions) < self._streams:
            self._sessions.append(self._make())
        for session in self._sessions:
            dealing.invite(session)

    async def _join(self, session: Source) -> bool:
        """Connect one more session, if that was not tried before; whether it can be used.

        :raises ReplicaChanged: when it shows another file than the first one did
        """
        if session is self._sessions[0]:
            return True
        if session not in self._joining:
            self._joining[session] = asyncio.create_task(_open(session))
        stat = await asyncio.shield(self._joining[session])  # the next range has a use for it if this one has none
        if stat and self._agreed and (stat.size, stat.validator) != (self._agreed.size, self._agreed.validator):
            raise ReplicaChanged(f"{redact(self.url)} changed while it was fetched", "start again")
        return stat is not None

    async def checksum(self, algorithm: str, start: int, end: int) -> str | None:
        return await self._sessions[0].checksum(algorithm, start, end)

    async def close(self) -> None:
        await self._forget_joined()
        await asyncio.gather(*(session.close() for session in self._sessions))

    async def _forget_joined(self) -> None:
        joining = list(self._joining.values())
        self._joining.clear()
        for task in joining:
            task.cancel()
        await asyncio.gather(*joining, return_exceptions=True)


async def _open(session: Source) -> Stat | None:
    try:
        return await session.open()
    except SourceError:
        return None


class _Part(Span):
    """A part of `whole`, beyond whose end it never reaches; its bytes before `at` are delivered."""

    __slots__ = ("_begun_at", "_dealt_at", "_end", "_whole", "at")

    def __init__(self, whole: Span, start: int, end: int, now: float) -> None:
        self._whole = whole
        super().__init__(start, end)
        self.at = start
        self._dealt_at = now
        self._begun_at: float | None = None

    @property
    def end(self) -> int:
        return max(self.start, min(self._end, self._whole.end))

    @end.setter
    def end(self, end: int) -> None:
        self._end = end

    @property
    def left(self) -> int:
        return max(0, self.end - self.at)

    @property
    def delivered(self) -> bool:
        """Whether all was delivered that was asked for, which may be more than is wanted by now."""
        return self.at >= self._end

    def reached(self, at: int, now: float) -> None:
        self.at = at
        if self._begun_at is None:
            self._begun_at = now

    def worth_cutting(self, now: float) -> bool:
        """Whether it lasts, at the rate so far, long enough for another session to be of use."""
        if self.left < LEAST_CUT or self._begun_at is None:
            return self.left >= LEAST_CUT
        seconds = self.left * (now - self._dealt_at) / (self.at - self.start)
        return seconds > WORTH * (self._begun_at - self._dealt_at)


class _Dealing:
    """One range, dealt out to the sessions that are invited.

    :param join: connects a session, and says whether it can be used
    """

    def __init__(self, span: Span, deliver: Deliver, join: Callable[[Source], Awaitable[bool]]) -> None:
        self._span = span
        self._asked = span.end
        self._deliver = deliver
        self._join = join
        self._undealt = Intervals([(span.start, span.end)])
        self._received = Intervals()
        self._parts: dict[Source, _Part] = {}
        self._tasks: dict[Source, asyncio.Task[None]] = {}
        loop = asyncio.get_running_loop()
        self._time = loop.time
        self._over: asyncio.Future[None] = loop.create_future()
        self._error: BaseException | None = None
        self._caller = asyncio.current_task()

    async def run(self) -> None:
        """Wait until all is delivered, no session is left, or one met an error that the others would meet, too."""
        try:
            await self._over
        finally:
            self._stop()
            await asyncio.gather(*self._tasks.values(), return_exceptions=True)
        if self._error:
            raise self._error

    def _stop(self) -> None:
        """Cancel who has more to do; who has delivered a part to its end may keep the connection that it came on."""
        for session, task in self._tasks.items():
            if session not in self._parts or not self._parts[session].delivered:
                task.cancel()

    def invite(self, session: Source) -> None:
        """Let a session take part; may be called twice."""
        if session not in self._tasks:
            task = self._tasks[session] = asyncio.create_task(self._work(session))
            task.add_done_callback(self._left)

    def _left(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if error or not any(not other.done() for other in self._tasks.values()):
            self._end(error)

    def _end(self, error: BaseException | None = None) -> None:
        if not self._over.done():
            self._error = error
            self._over.set_result(None)

    async def _work(self, session: Source) -> None:
        if self._span.end - self._span.start <= SMALLEST * len(self._parts):
            return  # not enough for one more
        if not await self._join(session):
            return
        while part := self._deal():
            self._parts[session] = part
            try:
                await session.fetch(part, partial(self._take, part))
            except SourceError as error:
                self._give_back(session, error)
                return
            del self._parts[session]
            if session.recalled and self._hands > 1:
                await session.close()
                return

    def _give_back(self, session: Source, error: SourceError) -> None:
        """Leave the rest of a failed session's part to the others, if any is at work."""
        part = self._parts.pop(session)
        if isinstance(error, ReplicaChanged) or not self._parts:
            raise error
        for start, end in self._received.gaps(part.start, part.end):
            self._undealt.add(start, end)

    def _deal(self) -> _Part | None:
        """The next part for a session that is free, while there is one."""
        self._undealt.remove(self._span.end, self._asked)
        if not self._undealt:
            self._cut_off()
        if not self._undealt:
            return None
        start, end = next(iter(self._undealt))
        part = _Part(self._span, start, min(end, start + self._fair(self._undealt.total)), self._time())
        self._undealt.remove(part.start, part.end)
        return part

    def _cut_off(self) -> None:
        """Take back half of the longest part, which is the whole range as long as one session had all."""
        part = max(self._parts.values(), key=lambda part: part.left, default=None)
        if part and part.worth_cutting(self._time()):
            end, part.end = part.end, part.at + part.left // 2
            self._undealt.add(part.end, end)

    def _fair(self, left: int) -> int:
        if self._hands == 1:
            return left
        return min(LARGEST, max(SMALLEST, -(-left // (self._hands - len(self._parts)))))

    @property
    def _hands(self) -> int:
        """How many sessions take part, those counted that are connecting."""
        return sum(not task.done() for task in self._tasks.values())

    def _take(self, part: _Part, offset: int, view: memoryview) -> None:
        if self._caller and self._caller.cancelling():  # it has not come round to stopping us
            return
        view = view[: max(0, part.end - offset)]
        if view:
            self._deliver(offset, view)
            part.reached(offset + len(view), self._time())
            self._received.add(offset, part.at)
        if self._received.covers(self._span.start, self._span.end):
            self._end()  # sessions may still fetch what lies beyond an end that was lowered
