"""Channels that copy bytes from one host to another, and stay open between pieces.

Between two servers, a channel is a pair of sessions (`ServerPair`); from a server to this machine, it is one or more
sessions (`Inward`): of GridFTP here, of other protocols in `read_only_server`. `hop_queue` opens channels, and decides
what to copy next.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Coroutine
from contextlib import suppress
from typing import ClassVar

from coalloc.collect.runtime.holder import Holder
from coalloc.collect.runtime.link_waits import LinkWaits
from coalloc.collect.runtime.local_destination import LocalDestination
from coalloc.collect.runtime.server import CollectServer
from coalloc.engine.gridftp import stream
from coalloc.engine.gridftp.address import parse_server
from coalloc.engine.gridftp.block_channel import BlockChannel, BlockModeUnavailable
from coalloc.engine.gridftp.login import security_for
from coalloc.engine.gridftp.session import Session
from coalloc.engine.gridftp.source import FAR
from coalloc.engine.gridftp.thirdparty import ThirdParty, open_third_party
from coalloc.engine.gridftp.transfer import StoredCallback
from coalloc.engine.span import Deliver, Span, pieces
from coalloc.errors import ConnectionLost, ReplicaChanged, SourceError, Stalled
from coalloc.safe_text import without_query

__all__ = ["Channel", "GridFTPInward", "Inward", "ServerPair"]

STALL_SECONDS = 30.0
"""Seconds after which a server that sends nothing is reconnected."""
LOOKS = 4
"""Number of checks within `STALL_SECONDS`."""


class Channel(ABC):
    """A channel from one host to another. Several pieces may be in flight at once."""

    sliced: ClassVar[bool]
    """Whether to copy long pieces in slices: True if a copy can be ended only by closing the whole channel."""

    @property
    @abstractmethod
    def usable(self) -> bool:
        """Return whether the channel can copy more."""

    @property
    @abstractmethod
    def queues(self) -> bool:
        """Return whether pieces follow each other on one connection, so that many can be requested ahead."""

    def held(self, sink: str, start: int, end: int) -> list[tuple[int, int]]:
        """Return the parts of a range that the sink has from an earlier attempt; `copy` does not copy them again."""
        return []

    @abstractmethod
    async def copy(self, source: str, sink: str, start: int, end: int, received: StoredCallback) -> None:
        """Copy bytes [start, end) to the same offset of another file; an empty range copies an empty file.

        :param source: path at the source
        :param sink: path at the sink, or the file's name for `LocalDestination`
        :param received: callback for bytes that are stored permanently
        :raises SourceError: or a SinkError, if this machine is the sink
        """

    @abstractmethod
    def close(self) -> None:
        """Close all connections; may be called twice."""


class ServerPair(Channel):
    """A channel between two servers."""

    sliced = True

    def __init__(self, sessions: ThirdParty) -> None:
        self._sessions = sessions

    @classmethod
    async def open(cls, source: CollectServer, sink: CollectServer) -> "ServerPair":
        """Open a channel. :raises SourceError: when a login is refused, or the servers cannot connect to each other"""
        return cls(await open_third_party(source.url, sink.url, source.options, sink_options=sink.options))

    @property
    def usable(self) -> bool:
        return self._sessions.usable

    @property
    def route(self) -> str:
        """The route between the servers: a depot, or "none"."""
        return self._sessions.route

    @property
    def queues(self) -> bool:
        return True

    async def copy(self, source: str, sink: str, start: int, end: int, received: StoredCallback) -> None:
        ranges = [(start, end)] if start < end else None
        await self._sessions.copy(source, sink, end, ranges, received)

    def close(self) -> None:
        self._sessions.close()


class Inward(Channel):
    """A channel from a server to this machine. Each piece waits for its turn if the rate is limited."""

    sliced = False

    def __init__(self, source: Holder, here: LocalDestination, waits: LinkWaits) -> None:
        self._holder = source
        self._here = here
        self._waits = waits
        self._time = asyncio.get_running_loop().time
        self._moved = 0.0

    @property
    def usable(self) -> bool:
        return True

    def held(self, sink: str, start: int, end: int) -> list[tuple[int, int]]:
        return self._here.held(sink, start, end)

    async def copy(self, source: str, sink: str, start: int, end: int, received: StoredCallback) -> None:
        missing = self._here.missing(sink, start, end)

        def deliver(start: int, end: int, data: memoryview | None) -> None:
            assert data is not None, "these channels end at this machine"
            self._note_progress()
            self._here.write(sink, start, data)
            received(start, end)

        admission = self._holder.options.admission
        for gap in missing:
            for part in pieces(Span(*gap), admission.piece) if admission else [Span(*gap)]:
                await self._admit(part.end - part.start)
                await self._fetch_part(source, Span(part.start, part.end), deliver)

    async def _admit(self, nbytes: int) -> None:
        """Wait until so many bytes may be requested."""
        if admission := self._holder.options.admission:
            with self._waits.waiting():
                await admission.wait(nbytes)

    async def _fetch_part(self, path: str, span: Span, deliver: Deliver) -> None:
        try:
            await self._fetch(path, span, deliver)
        except ConnectionLost:
            await self._see_size(path, span.end)
            raise

    def _note_progress(self) -> None:
        """Record that the channel has not stalled."""
        self._moved = self._time()

    @abstractmethod
    async def _fetch(self, path: str, span: Span, deliver: Deliver) -> None:
        """Fetch a range of a file, and watch the transfer.

        :raises SourceError: when that fails
        """

    async def _see_size(self, path: str, end: int) -> None:
        """Check the size of a file whose transfer ended early; a retry cannot complete a file that became shorter.

        :raises ReplicaChanged: when the file has become too short
        """
        size = None
        with suppress(SourceError):
            size = await self._holder.size_now(path)
        if size is not None and size < end:
            changed = f"{self._holder.label}{without_query(path)} shrank to {size} bytes during the collect job"
            raise ReplicaChanged(changed, "run the same command again")

    async def _watched(self, fetch: Coroutine[None, None, None], span: Span) -> None:
        """Wait for a fetch. :raises Stalled: when the server has sent nothing over this channel for too long"""
        fetching = asyncio.ensure_future(fetch)
        self._note_progress()
        try:
            while not fetching.done():
                await asyncio.wait({fetching}, timeout=STALL_SECONDS / LOOKS)
                if span.held:
                    self._note_progress()
                if not fetching.done() and self._time() - self._moved > STALL_SECONDS:
                    self._drop()
                    raise Stalled(f"no data came from {self._holder.label} for {STALL_SECONDS:g} s", "try again later")
            fetching.result()
        finally:
            fetching.cancel()
            await asyncio.wait({fetching})

    def _drop(self) -> None:
        """Close the connection that all pieces share, if there is one, as its server has stalled."""


class GridFTPInward(Inward):
    """A channel from a GridFTP server to this machine.

    It keeps one data connection open if the server is far away and supports this (MODE E); otherwise it has one session
    for each piece in flight.
    """

    def __init__(self, source: CollectServer, here: LocalDestination, waits: LinkWaits) -> None:
        super().__init__(source, here, waits)
        self._source = source
        self._idle: list[Session] = []
        self._persistent: tuple[Session, BlockChannel] | None = None
        self._may_keep = True
        self._opening = asyncio.Lock()

    @property
    def queues(self) -> bool:
        return self._persistent is not None

    async def _fetch(self, path: str, span: Span, deliver: Deliver) -> None:
        await self._watched(self._fetch_over_session(path, span, deliver), span)

    async def _fetch_over_session(self, path: str, span: Span, deliver: Deliver) -> None:
        if self._may_keep and (persistent := await self._usable_persistent(path)):
            session, channel = persistent
            try:
                return await channel.fetch(span, deliver, session.about(path))
            except BlockModeUnavailable:
                self._may_keep = False
                self._drop()
        session = await self._session(path)
        try:
            await stream.fetch(session.about(path), await session.data.take(), span, deliver)
        finally:
            if session.usable:
                self._idle.append(session)
            else:
                session.close()  # the connection for the next piece may be open already

    async def _usable_persistent(self, path: str) -> tuple[Session, BlockChannel] | None:
        """Return the open session and its data connection, opened if needed; None if keeping it is not worthwhile."""
        async with self._opening:
            if self._persistent and not (self._persistent[0].usable and self._persistent[1].usable):
                self._drop()
            if self._persistent is None:
                session = await self._session(path)
                self._may_keep = (session.stat.rtt or 0.0) >= FAR and session.sends_blocks
                if not self._may_keep:
                    self._idle.append(session)
                    return None
                self._persistent = session, BlockChannel(session)
            return self._persistent

    async def _session(self, path: str) -> Session:
        while self._idle:
            session = self._idle.pop()
            if session.usable:
                return session
            session.close()
        address = parse_server(self._source.url).at(path)
        options = self._source.options
        return await Session.open(address, options, security_for(address, options), lambda _: None, pipelined=True)

    def _drop(self) -> None:
        if self._persistent:
            session, channel = self._persistent
            channel.close()
            session.close()
            self._persistent = None

    def close(self) -> None:
        self._drop()
        while self._idle:
            self._idle.pop().close()
