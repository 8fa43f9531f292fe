"""One range divided among several sessions: which session fetches which part, and who takes over a lost session's part.

Every session is given a part; sessions that queue are given short slices, front to back. A session that is free,
because it has delivered its part or has only now connected, takes half of the part expected to finish last. `hands`
decides how long parts are and when splitting one is worth it.
"""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial

from coalloc.engine.base import Source
from coalloc.engine.sessions.work import Hand, Part
from coalloc.engine.span import Deliver, Span
from coalloc.errors import ReplicaChanged, SourceError
from coalloc.util.intervals import Intervals

__all__ = ["SMALLEST", "Dealing"]

SMALLEST = 512 * 1024
"""Smallest part, in bytes, that is worth its set-up."""
MOMENT = 2 * 1024 * 1024
"""Bytes of a part for a session that will queue as soon as the part has ended, while others deliver, too."""
LOOK_SECONDS = 0.1
"""Seconds between checks of an idle session whether another one has fallen behind or failed."""


class Dealing:
    """One range, divided among the sessions that are invited.

    :param join: connects a session, and returns whether it can be used
    :param rtt: round-trip time to the server in seconds
    """

    def __init__(self, span: Span, deliver: Deliver, join: Callable[[Source], Awaitable[bool]], rtt: float) -> None:
        self._span = span
        self._asked = span.end
        self._deliver = deliver
        self._join = join
        self._rtt = rtt
        self._undealt = Intervals(Intervals(span.skip).gaps(span.start, span.end))
        self._received = Intervals(span.skip)
        self._hands: dict[Source, Hand] = {}
        self._tasks: dict[Source, asyncio.Task[None]] = {}
        loop = asyncio.get_running_loop()
        self._time = loop.time
        self._over: asyncio.Future[None] = loop.create_future()
        self._error: BaseException | None = None
        self._failure: SourceError | None = None
        """The error for which a session left its parts to the others; all sessions may fail at once."""
        self._caller = asyncio.current_task()

    async def run(self) -> None:
        """Wait until all is delivered, no session is left, or one met an error that the others would meet, too."""
        try:
            await self._over
        finally:
            for task in self._tasks.values():
                task.cancel()
            await asyncio.gather(*self._tasks.values(), return_exceptions=True)
        if self._error:
            raise self._error

    def invite(self, session: Source) -> None:
        """Let a session take part; may be called twice."""
        if session not in self._tasks:
            task = self._tasks[session] = asyncio.create_task(self._work(session))
            task.add_done_callback(self._left)

    def _left(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if error or not any(not other.done() for other in self._tasks.values()):
            self._end(error or self._failure)

    def _end(self, error: BaseException | None = None) -> None:
        if not self._over.done():
            self._error = error
            self._over.set_result(None)

    async def _work(self, session: Source) -> None:
        if self._span.end - self._span.start <= SMALLEST * len(self._hands):
            return  # too little for one more session
        if not await self._join(session):
            return
        hand = self._hands[session] = Hand(session, self._rtt)
        try:
            while self._employ(hand):
                await self._fetched(hand)
                if session.recalled and len(self._hands) > 1:
                    await self._see_off(hand)
                    return
        except SourceError as error:
            self._give_back(hand, error)
        finally:
            del self._hands[session]
            await self._stop(hand)

    def _employ(self, hand: Hand) -> bool:
        """Give a session its next parts; return whether it has work, or may get some if another session fails."""
        while part := self._deal(hand):
            fetch = hand.session.fetch(part, partial(self._take, hand, part))
            hand.given(asyncio.create_task(fetch), part, self._time())
        return any(each.parts for each in self._hands.values())

    async def _see_off(self, hand: Hand) -> None:
        """Let a session finish its parts, then close it."""
        while hand.parts:
            await self._fetched(hand)
        await hand.session.close()

    async def _fetched(self, hand: Hand) -> None:
        """Wait until one of a session's parts is delivered.

        :raises SourceError: when it failed
        """
        if not hand.parts:
            await asyncio.sleep(LOOK_SECONDS)
            return
        done, _ = await asyncio.wait(hand.parts, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
            del hand.parts[task]

    @staticmethod
    async def _stop(hand: Hand) -> None:
        """Cancel the fetches of undelivered parts; those that are fully delivered may keep their connection."""
        for task, part in hand.parts.items():
            if not part.delivered:
                task.cancel()
        await asyncio.gather(*hand.parts, return_exceptions=True)

    def _give_back(self, hand: Hand, error: SourceError) -> None:
        """Return a failed session's missing ranges to the pool, if there are other sessions."""
        if isinstance(error, ReplicaChanged) or len(self._hands) == 1:
            raise error
        self._failure = error
        for part in hand.parts.values():
            for start, end in self._received.gaps(part.start, part.end):
                self._undealt.add(start, end)

    def _others(self, hand: Hand) -> list[Hand]:
        return [other for other in self._hands.values() if other is not hand]

    def _deal(self, hand: Hand) -> Part | None:
        """Return the next part for a session that should have one; None if it should not or nothing is left."""
        self._undealt.remove(self._span.end, self._asked)
        if not hand.free(self._fair(hand), self._lasts()):
            return None
        if not self._undealt:
            self._cut_off(hand)
        if not self._undealt:
            return None
        start, end = next(iter(self._undealt))
        part = Part(self._span, start, min(end, start + hand.length(self._fair(hand))))
        self._undealt.remove(part.start, part.end)
        return part

    def _cut_off(self, hand: Hand) -> None:
        """Take back the end of the part expected to finish last, which is the whole range if one session has it all."""
        now = self._time()
        last = max(self._others(hand), key=lambda other: (other.seconds(now), other.left), default=None)
        if last and (cut := last.cut_for(hand, now)):
            self._undealt.add(*cut)

    def _lasts(self) -> float:
        """Return for how many seconds the undealt bytes will last."""
        now = self._time()
        return self._undealt.total / max(1.0, sum(hand.rate(now) for hand in self._hands.values()))

    def _fair(self, hand: Hand) -> int:
        """Return the length of a part if all undealt bytes were dealt out now to idle or queueing sessions."""
        working = sum(not task.done() for task in self._tasks.values())  # sessions that are still connecting count
        if hand.session.queues:
            return self._undealt.total // working
        if working == 1:
            return self._undealt.total
        if hand.session.will_queue:
            return MOMENT
        without = max(1, working - sum(bool(other.parts) for other in self._hands.values()))
        return max(SMALLEST, -(-self._undealt.total // without))

    def _take(self, hand: Hand, part: Part, offset: int, view: memoryview) -> None:
        if self._caller and self._caller.cancelling():  # the caller is cancelled and has not stopped this object yet
            return
        view = view[: max(0, part.end - offset)]
        if view:
            self._deliver(offset, view)
            at = offset + len(view)
            hand.delivered(part, at, self._time())
            self._received.add(offset, at)
        wanted = self._span.end - self._span.start  # sessions may still fetch bytes beyond an end that was lowered
        if self._received.total >= wanted and self._received.covers(self._span.start, self._span.end):
            self._end()
