"""One replica fetched by several sessions, for protocols with one stream per session.

`sharing` divides each range into parts for the sessions; a single session gets them one after the other. A server
without ranges sends the whole file to one session. The scheduler decides the number of sessions.
"""

import asyncio
from collections.abc import Callable

from coalloc.engine.base import Source
from coalloc.engine.limits.within_process import connecting
from coalloc.engine.sessions.sharing import RangeSharing
from coalloc.engine.span import Deliver, Span
from coalloc.errors import ReplicaChanged, SourceError
from coalloc.model import PathState, Stat
from coalloc.safe_text import redact

__all__ = ["Parallel"]


class Parallel(Source):
    """One or more sessions with one replica, each made by `make`, used as one source.

    The transfer continues without a session that is refused or lost, as long as another session works. A session whose
    slot is recalled finishes its parts first.

    :param streams: number of sessions until `widen` raises it
    """

    def __init__(self, make: Callable[[], Source], streams: int = 1) -> None:
        self._make = make
        self._sessions = [make()]
        super().__init__(self._sessions[0].url, self._sessions[0].options)
        self._streams = streams
        self._joining: dict[Source, asyncio.Task[Stat | None]] = {}
        self._agreed: Stat | None = None
        self._sharing: RangeSharing | None = None

    async def open(self) -> Stat:
        await self._forget_joined()
        async with connecting.here():
            self._agreed = await self._sessions[0].open()
        return self._agreed

    def widen(self, streams: int) -> None:
        self._streams = max(self._streams, streams)
        if self._agreed is None:  # further sessions connect at the same time as the first one
            for session in self._further():
                self._joining[session] = self._joining.get(session) or asyncio.create_task(_open(session))
        if self._sharing:
            self._invite(self._sharing)

    @property
    def path_state(self) -> PathState | None:
        known = [state for session in self._sessions if (state := session.path_state)]
        return PathState(max(each.rtt for each in known), sum(each.disordered for each in known)) if known else None

    async def fetch(self, span: Span, deliver: Deliver) -> None:
        if self._agreed and not self._agreed.ranged:
            await self._sessions[0].fetch(span, deliver)
            return
        if span.start >= span.end:
            return
        rtt = self._agreed.rtt if self._agreed else None
        self._sharing = RangeSharing(span, deliver, self._join, rtt or 0.0)
        try:
            self._invite(self._sharing)
            await self._sharing.run()
        finally:
            self._sharing = None

    def _invite(self, sharing: RangeSharing) -> None:
        for session in [self._sessions[0], *self._further()]:
            sharing.invite(session)

    def _further(self) -> list[Source]:
        """Return all sessions but the first."""
        while len(self._sessions) < self._streams:
            self._sessions.append(self._make())
        return self._sessions[1:]

    async def _join(self, session: Source) -> bool:
        """Connect one more session, if that was not tried before; return whether it can be used.

        :raises ReplicaChanged: when its file has another size or version than that of the first session
        """
        if session is self._sessions[0]:
            return True
        if session not in self._joining:
            self._joining[session] = asyncio.create_task(_open(session))
        stat = await asyncio.shield(self._joining[session])  # shielded, as the next range may use it
        if stat and self._agreed and (stat.size, stat.validator) != (self._agreed.size, self._agreed.validator):
            raise ReplicaChanged(f"{redact(self.url)} changed while it was fetched", "start again")
        return stat is not None

    async def checksum(self, algorithm: str, start: int, end: int) -> str | None:
        return await self._sessions[0].checksum(algorithm, start, end)

    async def recheck(self) -> Stat | None:
        return await self._sessions[0].recheck()

    async def close(self) -> None:
        await self._forget_joined()
        await asyncio.gather(*(session.close() for session in self._sessions))

    @property
    def wanted(self) -> bool:
        return self._sharing is None and self._sessions[0].wanted

    async def rest(self) -> None:
        await self._forget_joined()
        await asyncio.gather(*(session.rest() for session in self._sessions))

    async def _forget_joined(self) -> None:
        joining = list(self._joining.values())
        self._joining.clear()
        for task in joining:
            task.cancel()
        await asyncio.gather(*joining, return_exceptions=True)


async def _open(session: Source) -> Stat | None:
    try:
        async with connecting.here():
            return await session.open()
    except SourceError:
        return None
