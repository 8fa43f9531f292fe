"""A channel from a GridFTP server to this machine. Each of its sessions counts as a connection to the server."""

import asyncio

from coalloc.collect.runtime.channels import Inward
from coalloc.collect.runtime.link_waits import LinkWaits
from coalloc.collect.runtime.local_destination import LocalDestination
from coalloc.collect.runtime.server import CollectServer
from coalloc.engine.gridftp import stream
from coalloc.engine.gridftp.address import parse_server
from coalloc.engine.gridftp.block_channel import BlockChannel, BlockModeUnavailable
from coalloc.engine.gridftp.login import security_for
from coalloc.engine.gridftp.session import Session
from coalloc.engine.gridftp.source import FAR
from coalloc.engine.limits.server_slots import Lease
from coalloc.engine.span import Deliver, Span

__all__ = ["GridFTPInward"]


class _Seat:
    """A connection that the server has for a session, and its session, if it is open."""

    def __init__(self, lease: Lease) -> None:
        self.lease = lease
        self.session: Session | None = None

    @property
    def usable(self) -> bool:
        return self.session is not None and self.session.usable


class GridFTPInward(Inward):
    """The sessions with one server.

    It keeps one data connection open if the server is far away and supports this (MODE E); otherwise it has one session
    for each piece in flight. If this machine has all permitted connections, it waits for the first one; a further one
    is not waited for: then pieces follow each other.
    """

    def __init__(self, source: CollectServer, here: LocalDestination, waits: LinkWaits) -> None:
        super().__init__(source, here, waits)
        self._source = source
        self._seats = 0
        """Number of connections, in use or idle."""
        self._idle: list[_Seat] = []
        self._choosing = asyncio.Lock()
        self._changed = asyncio.Event()
        """Set when a connection becomes idle, or is given back."""
        self._persistent: tuple[_Seat, BlockChannel] | None = None
        self._may_keep = True
        self._opening = asyncio.Lock()

    @property
    def queues(self) -> bool:
        return self._persistent is not None

    @property
    def wanted(self) -> bool:
        return self._seats > 0 and self._source.wanted

    async def _fetch(self, path: str, span: Span, deliver: Deliver) -> None:
        if self._may_keep and (persistent := await self._usable_persistent(path, span)):
            session, channel = persistent
            try:
                await self._watched(channel.fetch(span, deliver, session.about(path)), span)
                return
            except BlockModeUnavailable:
                self._may_keep = False
                self._drop()
        seat = await self._seat()
        try:
            await self._watched(self._fetch_stream(seat, path, span, deliver), span)
        finally:
            self._return(seat)

    async def _fetch_stream(self, seat: _Seat, path: str, span: Span, deliver: Deliver) -> None:
        session = await self._session(seat, path)
        await stream.fetch(session.about(path), await session.data.take(), span, deliver)

    async def _usable_persistent(self, path: str, span: Span) -> tuple[Session, BlockChannel] | None:
        """Return the open session and its data connection, opened if needed; None if keeping it is not worthwhile."""
        async with self._opening:
            if self._persistent and not (self._persistent[0].usable and self._persistent[1].usable):
                self._drop()
            if self._persistent is None and self._may_keep:
                await self._try_to_keep(path, span)
            if self._persistent is None:
                return None
            seat, channel = self._persistent
            assert seat.session
            return seat.session, channel

    async def _try_to_keep(self, path: str, span: Span) -> None:
        """Open a session, and a data connection that is kept, if that is worthwhile."""
        seat = await self._seat()
        try:
            await self._watched(self._session(seat, path), span)
            assert seat.session
            self._may_keep = (seat.session.stat.rtt or 0.0) >= FAR and seat.session.sends_blocks
            if self._may_keep:
                self._persistent = seat, BlockChannel(seat.session)
        finally:
            if self._persistent is None:
                self._return(seat)

    async def _seat(self) -> _Seat:
        """Return a connection: an idle one, or a new one, after a wait if there is none yet and none is free."""
        async with self._choosing:
            while not self._idle:
                lease = self._source.take()
                if lease is None and not self._seats:
                    with self._waits.waiting():
                        lease = await self._source.lease()
                if lease:
                    self._seats += 1
                    return _Seat(lease)
                self._changed.clear()
                await self._changed.wait()
            return self._idle.pop()

    async def _session(self, seat: _Seat, path: str) -> Session:
        if seat.session and not seat.session.usable:
            seat.session.close()
            seat.session = None
        if seat.session is None:
            address, options = parse_server(self._source.url).at(path), self._source.options
            seat.session = await Session.open(
                address, options, security_for(address, options), lambda _: None, pipelined=True
            )
        return seat.session

    def _return(self, seat: _Seat) -> None:
        """Keep a connection for the next piece, if its session can be used, and others do not wait for it."""
        if seat.usable:
            self._idle.append(seat)
            self._changed.set()
            self.spare()
        else:
            self._end(seat)

    def spare(self) -> None:
        """Give back idle connections that others wait for, but keep one, as each piece would need a login."""
        while self._idle and self._seats > 1 and self._source.wanted:
            self._end(self._idle.pop())

    def _end(self, seat: _Seat) -> None:
        if seat.session:
            seat.session.close()  # the connection for the next piece may be open already
        seat.lease.release()
        self._seats -= 1
        self._changed.set()

    def _drop(self) -> None:
        if self._persistent:
            seat, channel = self._persistent
            self._persistent = None
            channel.close()
            self._end(seat)

    def close(self) -> None:
        self._drop()
        while self._idle:
            self._end(self._idle.pop())
