"""One replica fetched by several sessions, for protocols with one stream per session.

`sharing` divides each range into parts for the sessions; a single session gets them one after the other. A server
without ranges sends the whole file to one session. The scheduler decides the number of sessions.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import TypeVar
from urllib.parse import urlsplit

from coalloc.engine.base import Source
from coalloc.engine.sessions.replica_session import ReplicaSession
from coalloc.engine.sessions.route_meter import RouteMeter
from coalloc.engine.sessions.sharing import RangeSharing
from coalloc.engine.span import Deliver, Span
from coalloc.errors import ConnectionLost, NoFreeConnection, SourceError, Stalled, Unreachable
from coalloc.model.replicas import Stat
from coalloc.model.routes import DIRECTLY, PathState, RouteUse
from coalloc.util.concurrency import succeeded
from coalloc.util.dialer import Dialer, fastest_is_known

__all__ = ["Parallel"]

Result = TypeVar("Result")

PATIENCE = 1.0
"""Seconds to wait for the fastest route when another one is ready."""


class Parallel(Source):
    """One or more sessions with one replica, used as one source.

    The transfer continues without a session that is refused or lost, as long as another session works. A session whose
    slot is recalled finishes its parts first.

    :param make: function that makes the session with this number, from 0
    :param streams: number of sessions until `widen` raises it; sessions added by it only borrow their slots
    :param dialers: dialers over all routes to the server, which the sessions take in turn; the first session over each
        connects at once, and the first one that is ready begins. If the fastest route is known, it is waited for.
    """

    def __init__(self, make: Callable[[int], Source], streams: int = 1, dialers: Sequence[Dialer] = ()) -> None:
        self._make = make
        self._owned = self._streams = streams
        source = make(0)
        super().__init__(source.url, source.options)
        host = urlsplit(source.url).hostname or ""
        self._meters = [RouteMeter(partial(dialer.route, host)) for dialer in dialers]
        self._direct = {
            meter for meter, each in zip(self._meters, dialers, strict=True) if each.route(host) == DIRECTLY
        }
        self._known = fastest_is_known(dialers, host)
        self._sessions = [self._session(0, source)]
        self._agreed: Stat | None = None
        self._sharings: list[RangeSharing] = []
        """One for each range under way."""

    async def open(self) -> Stat:
        await self._forget_joining()
        self._agreed = await (self._race() if len(self._meters) > 1 else self._sessions[0].open())
        return self._agreed

    async def _race(self) -> Stat:
        """Connect over all routes; put the session that begins before the others.

        :raises SourceError: if all fail, or the server itself refuses for good
        """
        sessions = [self._sessions[0], *self._further(len(self._meters))[: len(self._meters) - 1]]
        tasks = [session.begin_to_join() for session in sessions]
        await _first_answer(
            tasks, [task for task, each in zip(tasks, sessions, strict=True) if each.meter in self._direct]
        )
        if self._known:
            await asyncio.wait(tasks[:1], timeout=PATIENCE)
            self._known = False  # if it is opened again, a route has failed
        for i, session in enumerate(sessions):
            if not any(map(succeeded, tasks)) and isinstance(_error(tasks[i]), NoFreeConnection):
                await session.forget_joining()  # the others' connections are free now
                tasks[i] = session.begin_to_join()
                await asyncio.wait(tasks[i : i + 1])
        ready = next((i for i, task in enumerate(tasks) if succeeded(task)), None)
        if ready is None:
            errors = [error for task in tasks if (error := _error(task))]
            raise next((error for error in errors if not isinstance(error, Unreachable)), errors[0])
        self._sessions.insert(0, self._sessions.pop(ready))
        for session in self._sessions:
            session.expected = session.meter is self._sessions[0].meter
        return tasks[ready].result()

    @property
    def first_session(self) -> ReplicaSession:
        """The first session, for a caller that needs no others, such as one that reads a few bytes at a time."""
        return self._sessions[0]

    def widen(self, streams: int) -> None:
        self._streams = max(self._streams, streams)
        if self._agreed is None:  # further sessions connect at the same time as the first one
            for session in self._further():
                session.begin_to_join()
        for sharing in self._sharings:
            self._invite(sharing)

    @property
    def path_state(self) -> PathState | None:
        known = [state for session in self._sessions if (state := session.path_state)]
        return PathState(max(each.rtt for each in known), sum(each.disordered for each in known)) if known else None

    @property
    def unchanged_at(self) -> float:
        return max(session.unchanged_at for session in self._sessions)

    async def fetch(self, span: Span, deliver: Deliver) -> None:
        assert self._agreed is not None, "it is open"
        if not self._agreed.ranged:
            await self._sessions[0].fetch(span, deliver)
            return
        if span.start >= span.end:
            return
        sharing = RangeSharing(span, deliver, self._agreed)
        self._sharings.append(sharing)
        try:
            self._invite(sharing)
            await sharing.run()
        finally:
            self._sharings.remove(sharing)

    def _invite(self, sharing: RangeSharing) -> None:
        sharing.invite(self._sessions[0], connected=True)
        for session in self._further():
            sharing.invite(session)

    def _further(self, least: int = 1) -> list[ReplicaSession]:
        """Return all sessions but the first.

        :param least: minimum number of all sessions
        """
        for number in range(len(self._sessions), max(least, self._streams)):
            session = self._session(number, self._make(number))
            session.expected = session.meter is self._sessions[0].meter
            self._sessions.append(session)
        return self._sessions[1:]

    def _session(self, number: int, source: Source) -> ReplicaSession:
        meter = self._meters[number % len(self._meters)] if self._meters else None
        return ReplicaSession(source, on_loan=number >= self._owned, meter=meter)

    @property
    def routes(self) -> tuple[RouteUse, ...]:
        return tuple(use for meter in self._meters if (use := meter.use))

    async def checksum(self, algorithm: str, start: int, end: int) -> str | None:
        return await self._answer(lambda session: session.checksum(algorithm, start, end))

    async def recheck(self) -> Stat | None:
        return await self._answer(lambda session: session.recheck())

    async def _answer(self, ask: Callable[[ReplicaSession], Awaitable[Result]]) -> Result:
        """Ask the first session; if its route has failed, ask one over each other route.

        :raises SourceError: if all fail, the first one's error
        """
        by_route = {session.meter: session for session in reversed(self._sessions)}
        first, *others = reversed(by_route.values())
        try:
            return await ask(first)
        except (Unreachable, ConnectionLost, Stalled):
            for session in others:
                with suppress(Unreachable, ConnectionLost, Stalled):
                    return await ask(session)
            raise

    async def close(self) -> None:
        await self._forget_joining()
        await asyncio.gather(*(session.close() for session in self._sessions))

    @property
    def wanted(self) -> bool:
        return not self._sharings and self._sessions[0].wanted

    @property
    def queues(self) -> bool:
        return bool(self._sharings) and all(sharing.queues for sharing in self._sharings)

    async def rest(self) -> None:
        await self._forget_joining()
        await asyncio.gather(*(session.rest() for session in self._sessions))

    async def _forget_joining(self) -> None:
        await asyncio.gather(*(session.forget_joining() for session in self._sessions))


async def _first_answer(tasks: Sequence[asyncio.Task[Stat]], direct: Sequence[asyncio.Task[Stat]]) -> None:
    """Wait until a session is ready, all have failed, or the server itself has refused a direct one for good."""
    pending = set(tasks)
    while pending and not (any(map(succeeded, tasks)) or any(_is_final(_error(task)) for task in direct)):
        _, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)


def _is_final(error: SourceError | None) -> bool:
    return error is not None and error.permanent and not isinstance(error, Unreachable)


def _error(task: asyncio.Task[Stat]) -> SourceError | None:
    """Return the error of a session that failed to connect; None if it is ready, or still connecting."""
    if not task.done():
        return None
    if task.cancelled():  # the source was closed meanwhile
        return ConnectionLost("the source was closed", "open it again")
    error = task.exception()
    if error is not None and not isinstance(error, SourceError):
        raise error
    return error
