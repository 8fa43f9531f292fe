"""Division of one range among several sessions, which also take over the parts of lost sessions.

Each session gets a part; sessions that queue get short slices, from front to back. A session without a part, because it
has delivered its part or has just connected, steals from the session expected to finish last, by the rule in
`schedule.steal_size`. `work` decides the length of parts, and describes a session to the rule.
"""

import asyncio
from functools import partial

from coalloc.engine.sessions.replica_session import ReplicaSession
from coalloc.engine.sessions.work import SessionWork
from coalloc.engine.span import Deliver, RangePart, Span
from coalloc.errors import ReplicaChanged, SourceError
from coalloc.model.replicas import Stat
from coalloc.schedule.state import UNKNOWN_RATE, median
from coalloc.schedule.steal_size import seconds_together, stolen
from coalloc.util.intervals import Intervals

__all__ = ["SMALLEST", "RangeSharing"]

SMALLEST = 512 * 1024
"""Minimum bytes of a part that is worth its set-up."""
WORTH_A_ROUTE = 4 * 1024 * 1024
"""The same of a range for a session that takes a further route, whose rate is not known yet."""
MOMENT = 2 * 1024 * 1024
"""Bytes of a part for a session that can queue only after this part, if other sessions deliver, too."""
LATE = 2.0
"""Factor by which a first byte must be later than usual for its request to be given up."""
LOOK_SECONDS = 0.1
"""Seconds between checks of a session: whether another session is behind or has failed, or this one is recalled."""


class RangeSharing:
    """One range, divided among the sessions that are invited.

    :param agreed: the first session's answer about the replica
    """

    def __init__(self, span: Span, deliver: Deliver, agreed: Stat) -> None:
        self._span = span
        self._requested_end = span.end
        self._deliver = deliver
        self._agreed = agreed
        self._unshared = Intervals(Intervals(span.skip).gaps(span.start, span.end))
        self._received = Intervals(span.skip)
        self._works: dict[ReplicaSession, SessionWork] = {}
        self._tasks: dict[ReplicaSession, asyncio.Task[None]] = {}
        self._leaving: set[ReplicaSession] = set()
        loop = asyncio.get_running_loop()
        self._time = loop.time
        self._over: asyncio.Future[None] = loop.create_future()
        self._error: BaseException | None = None
        self._failure: SourceError | None = None
        """The last error of a session that left its parts to others, raised if no session is left."""
        self._caller = asyncio.current_task()

    async def run(self) -> None:
        """Wait until all bytes are delivered, no session is left, or an error occurs that ends all sessions."""
        try:
            await self._over
        finally:
            for task in self._tasks.values():
                task.cancel()
            await asyncio.gather(*self._tasks.values(), return_exceptions=True)
        if self._error:
            raise self._error

    @property
    def queues(self) -> bool:
        """Return whether all sessions with parts accept further parts, also of another range."""
        return bool(self._works) and all(session.queues for session in self._works)

    def invite(self, session: ReplicaSession, *, connected: bool = False) -> None:
        """Let a session take part, once it is connected; may be called twice."""
        if session not in self._tasks:
            task = self._tasks[session] = asyncio.create_task(self._work(session, connected))
            task.add_done_callback(self._session_ended)

    def _session_ended(self, _: asyncio.Task[None]) -> None:
        ended = [each for each in self._tasks.values() if each.done()]  # several may end in the same loop iteration
        errors = [error for each in ended if not each.cancelled() and (error := each.exception())]
        if errors or len(ended) == len(self._tasks):
            self._end(errors[0] if errors else self._failure)

    def _end(self, error: BaseException | None = None) -> None:
        if not self._over.done():
            self._error = error
            self._over.set_result(None)

    async def _work(self, session: ReplicaSession, connected: bool) -> None:
        least = SMALLEST * len(self._works) if session.expected else WORTH_A_ROUTE
        if self._span.end - self._span.start <= least:
            return  # too little for one more session
        if not (connected or await session.join(self._agreed)):
            return
        work = self._works[session] = SessionWork(session, self._agreed.rtt or 0.0)
        try:
            while self._employ(work):
                await self._fetched(work)
                if session.recalled and self._works.keys() - self._leaving != {session}:
                    self._leaving.add(session)
                    if not session.queues:
                        self._cut(work)
                    await self._finish_and_close(work)
                    return
        except SourceError as error:
            self._give_back(work, error)
        finally:
            del self._works[session]
            await self._stop(work)

    def _employ(self, work: SessionWork) -> bool:
        """Give a session its next parts; return whether it has work, or may get work if another session fails."""
        while part := self._deal(work):
            fetch = work.session.fetch(part, partial(self._take, work, part))
            work.given(asyncio.create_task(fetch), part, self._time())
        return any(each.parts for each in self._works.values())

    def _cut(self, work: SessionWork) -> None:
        """Leave the end of a session's long part to the others; the bytes in flight still arrive."""
        soon = work.victim(UNKNOWN_RATE, self._time()).in_flight
        for part in work.parts.values():
            end, part.end = part.end, min(part.end, part.at + soon)
            soon -= part.left
            self._unshared.add(part.end, end)

    async def _finish_and_close(self, work: SessionWork) -> None:
        """Let a session finish its parts, then close it."""
        while work.parts:
            await self._fetched(work)
        await work.session.close()

    async def _fetched(self, work: SessionWork) -> None:
        """Wait until one of a session's parts is delivered, or until the session must be checked for a recall.

        :raises SourceError: when a part failed
        """
        if not work.parts:
            await asyncio.sleep(LOOK_SECONDS)
            return
        soon = None if work.session.queues else LOOK_SECONDS
        done, _ = await asyncio.wait(work.parts, timeout=soon, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
            del work.parts[task]

    @staticmethod
    async def _stop(work: SessionWork) -> None:
        """Cancel the fetches of undelivered parts; let the others end, so that they can keep their connection."""
        for task, part in work.parts.items():
            if not part.delivered:
                task.cancel()
        await asyncio.gather(*work.parts, return_exceptions=True)

    def _give_back(self, work: SessionWork, error: SourceError) -> None:
        """Make a failed session's missing ranges unassigned again; raise the error if no other session is left."""
        if isinstance(error, ReplicaChanged) or len(self._works) == 1:
            raise error
        self._failure = error
        for part in work.parts.values():
            for start, end in self._received.gaps(part.start, part.end):
                self._unshared.add(start, end)

    def _others(self, work: SessionWork) -> list[SessionWork]:
        return [other for other in self._works.values() if other is not work]

    def _deal(self, work: SessionWork) -> RangePart | None:
        """Return the next part for a session; None if it has enough, or no bytes are left."""
        self._unshared.remove(self._span.end, self._requested_end)
        if not work.free(self._fair(work), self._lasts()):
            return None
        if not self._unshared:
            self._steal(work)
        if not self._unshared:
            return None
        start, end = next(iter(self._unshared))
        part = RangePart(self._span, start, min(end, start + work.length(self._fair(work))))
        self._unshared.remove(part.start, part.end)
        return part

    def _steal(self, work: SessionWork) -> None:
        """Take back the end of the last part of the session expected to finish last."""
        now = self._time()
        rates = [rate for each in self._works.values() if (rate := each.rate(now))]
        guess = median(rates) if rates else UNKNOWN_RATE
        victims = {other: other.victim(guess, now) for other in self._others(work) if other.left}
        if not victims:
            return
        last = max(victims, key=lambda other: (victims[other].seconds, other.left))
        if last.session.queues:  # its server sends what was requested anyway: steal all movable bytes, or none
            victims = {last: victims[last]._replace(rate=0.0)}
        victim, thief = victims[last], work.thief(guess, now)
        nbytes = stolen(victim, thief, seconds_together(thief, victims.values()), last.worth(thief, victim))
        part = last.last_part()
        if nbytes and part:
            if nbytes == victim.nbytes and last.unanswered(now):
                if not self._overdue(last, now):
                    return
                last.give_up(now)
            end = part.end
            part.end = max(part.at, end - nbytes)
            self._unshared.add(part.end, end)

    def _overdue(self, work: SessionWork, now: float) -> bool:
        """Return whether a first byte takes much longer than usual at this server.

        If all of a request were taken from a session that only waits as long as any, the wait would begin anew, perhaps
        for ever.
        """
        known = [each.answers_after for each in self._works.values() if each.answers_after is not None]
        return bool(known) and work.unanswered(now) > LATE * median(known)

    def _lasts(self) -> float:
        """Return the seconds that the undealt bytes will last."""
        now = self._time()
        return self._unshared.total / max(1.0, sum(work.rate(now) for work in self._works.values()))

    def _fair(self, work: SessionWork) -> int:
        """Return the bytes per part if all undealt bytes were given now to idle or queueing sessions."""
        working = self._working
        if work.session.queues:
            return self._unshared.total // working
        if working == 1:
            return self._unshared.total
        if work.session.will_queue:
            return MOMENT
        without = max(1, working - sum(bool(other.parts) for other in self._works.values()))
        return max(SMALLEST, -(-self._unshared.total // without))

    @property
    def _working(self) -> int:
        """The number of sessions that take part, including those that are still connecting and expected to."""
        return sum(
            not task.done() and (session in self._works or session.expected) for session, task in self._tasks.items()
        )

    def _take(self, work: SessionWork, part: RangePart, start: int, end: int, data: memoryview | None) -> None:
        if self._caller and self._caller.cancelling():  # the caller is cancelled, but has not ended the sessions yet
            return
        end = min(end, part.end)
        if start < end:
            self._deliver(start, end, data and data[: end - start])
            work.delivered(part, end, self._time())
            self._received.add(start, end)
        wanted = self._span.end - self._span.start  # after the end was lowered, more bytes may be received
        if self._received.total >= wanted and self._received.covers(self._span.start, self._span.end):
            self._end()
