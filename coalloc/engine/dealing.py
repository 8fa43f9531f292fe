"""One range dealt out to several sessions: who fetches which part, and what becomes of it when a session is lost.

Every session is given a part, or, where sessions queue, slices of a moment each, front to back. One that is free,
because it has delivered what it had or has only now connected, takes half of what would be last to arrive. How long
parts are and when a cut is worth it is left to `hands`.
"""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial

from coalloc.engine.base import Deliver, Source, Span
from coalloc.engine.hands import Hand, Part
from coalloc.errors import ReplicaChanged, SourceError
from coalloc.intervals import Intervals

__all__ = ["SMALLEST", "Dealing"]

SMALLEST = 512 * 1024
"""Bytes of a part that is worth its set-up."""
MOMENT = 2 * 1024 * 1024
"""Bytes of a part for who is to queue as soon as it has ended, while others deliver, too."""
LOOK_SECONDS = 0.1
"""How often a session that has nothing left looks whether another one has fallen behind, or failed."""


class Dealing:
    """One range, dealt out to the sessions that are invited.

    :param join: connects a session, and says whether it can be used
    :param rtt: seconds of a round trip to the server
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
        """Why a session left its parts to the others; all may do so at once."""
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
            return  # not enough for one more
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
        """Give a session what it should have now; whether it has anything to do, or may have if another one fails."""
        while part := self._deal(hand):
            fetch = hand.session.fetch(part, partial(self._take, hand, part))
            hand.given(asyncio.create_task(fetch), part, self._time())
        return any(each.parts for each in self._hands.values())

    async def _see_off(self, hand: Hand) -> None:
        """Let a session end with what it has."""
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
        """Cancel what has more to do; what was delivered to its end may keep the connection that it came on."""
        for task, part in hand.parts.items():
            if not part.delivered:
                task.cancel()
        await asyncio.gather(*hand.parts, return_exceptions=True)

    def _give_back(self, hand: Hand, error: SourceError) -> None:
        """Leave what a failed session had to the others, if there are any."""
        if isinstance(error, ReplicaChanged) or len(self._hands) == 1:
            raise error
        self._failure = error
        for part in hand.parts.values():
            for start, end in self._received.gaps(part.start, part.end):
                self._undealt.add(start, end)

    def _others(self, hand: Hand) -> list[Hand]:
        return [other for other in self._hands.values() if other is not hand]

    def _deal(self, hand: Hand) -> Part | None:
        """The next part for a session that should have one, while there is one."""
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
        """Take back part of what would be last to arrive; it is the whole range as long as one session had all."""
        now = self._time()
        last = max(self._others(hand), key=lambda other: (other.seconds(now), other.left), default=None)
        if last and (cut := last.cut_for(hand, now)):
            self._undealt.add(*cut)

    def _lasts(self) -> float:
        """Seconds for which there is something to deal out."""
        now = self._time()
        return self._undealt.total / max(1.0, sum(hand.rate(now) for hand in self._hands.values()))

    def _fair(self, hand: Hand) -> int:
        """The length of a part if all that is left were dealt out now, to those who have none or who queue."""
        working = sum(not task.done() for task in self._tasks.values())  # those counted that are connecting
        if hand.session.queues:
            return self._undealt.total // working
        if working == 1:
            return self._undealt.total
        if hand.session.will_queue:
            return MOMENT
        without = max(1, working - sum(bool(other.parts) for other in self._hands.values()))
        return max(SMALLEST, -(-self._undealt.total // without))

    def _take(self, hand: Hand, part: Part, offset: int, view: memoryview) -> None:
        if self._caller and self._caller.cancelling():  # it has not come round to stopping us
            return
        view = view[: max(0, part.end - offset)]
        if view:
            self._deliver(offset, view)
            at = offset + len(view)
            hand.delivered(part, at, self._time())
            self._received.add(offset, at)
        wanted = self._span.end - self._span.start  # sessions may still fetch what lies beyond an end that was lowered
        if self._received.total >= wanted and self._received.covers(self._span.start, self._span.end):
            self._end()
