"""One replica at one GridFTP server: when sessions are made, reused and dropped."""

import asyncio
from contextlib import suppress
from dataclasses import replace

from coalloc.engine.base import Deliver, EngineOptions, Source, Span
from coalloc.engine.gridftp import stream
from coalloc.engine.gridftp.address import parse
from coalloc.engine.gridftp.modee import BlockChannel, NoWayBack
from coalloc.engine.gridftp.session import Security, Session
from coalloc.engine.parallel import Parallel
from coalloc.errors import ConnectionLost, ReplicaChanged
from coalloc.model import Stat

__all__ = ["GridFTPSource"]

BRIEF = 4 << 20
"""Bytes of which even a slow server knows the checksum so soon that a fetch can wait for it."""


class GridFTPSource(Source):
    """A file at a GridFTP or FTP server. Its control connection is kept between ranges.

    :raises UsageError: when the URL names no file at a server
    """

    def __init__(self, url: str, options: EngineOptions) -> None:
        super().__init__(url, options)
        self._address = parse(url)
        self._session: Session | None = None
        self._aside: Session | None = None
        self._fetching = False
        self._channel: BlockChannel | None = None
        self._pipelined = True
        self._sessions: Parallel | None = None
        self._agreed: Stat | None = None

    async def open(self) -> Stat:
        self._agreed = await self._sessions.open() if self._sessions else (await self._connected()).stat
        return self._agreed

    async def _open_session(self) -> Session:
        session = await Session.open(self._address, self.options, self._security(), self._pipelined)
        self._pipelined = session.pipelined
        return session

    def _security(self) -> Security | None:
        if self._address.scheme != "gsiftp":
            return None
        from coalloc.engine.gridftp.gsi import GridSecurity  # it takes its time, and plain FTP has no use for it

        return GridSecurity(self._address)

    async def _connected(self) -> Session:
        """A new session in place of the one before."""
        self._drop()
        self._session = await self._open_session()
        return self._session

    async def fetch(self, span: Span, deliver: Deliver) -> None:
        if span.start >= span.end:
            return
        self._fetching = True
        try:
            await self._fetch(span, deliver)
        finally:
            self._fetching = False

    async def _fetch(self, span: Span, deliver: Deliver) -> None:
        if self._sessions:
            await self._sessions.fetch(span, deliver)
        elif self.options.streams > 1:
            await self._fetch_blocks(await self._usable_session(), span, deliver)
        else:
            await self._fetch_stream(await self._usable_session(), span, deliver)

    async def _fetch_blocks(self, session: Session, span: Span, deliver: Deliver) -> None:
        if self._channel is None:
            self._channel = BlockChannel(session, self.options.streams)
        try:
            await self._channel.fetch(span, deliver)
        except NoWayBack:
            self._drop()
            self._sessions = self._stream_sessions()
            self._check_unchanged(await self._sessions.open())
            await self._sessions.fetch(span, deliver)

    def _stream_sessions(self) -> Parallel:
        """As many sessions as streams were wished for, each with a data connection that we make."""
        single = replace(self.options, streams=1)
        return Parallel(lambda: GridFTPSource(self.url, single), self.options.streams)

    async def _fetch_stream(self, session: Session, span: Span, deliver: Deliver) -> None:
        try:
            data = await session.data.take()
        except ConnectionLost:  # the server gave up the idle session
            session = await self._reopened()
            data = await session.data.take()
        await stream.fetch(session, data, span, deliver)

    async def _usable_session(self) -> Session:
        if self._session and self._session.usable:
            return self._session
        return await self._reopened()

    async def _reopened(self) -> Session:
        """A new session about the file that `open` saw."""
        session = await self._connected()
        self._check_unchanged(session.stat)
        return session

    def _check_unchanged(self, stat: Stat) -> None:
        if self._agreed and (stat.size, stat.validator) != (self._agreed.size, self._agreed.validator):
            raise ReplicaChanged(f"{self._address.shown} changed while it was fetched", "start again")

    async def checksum(self, algorithm: str, start: int, end: int) -> str | None:
        if end - start <= BRIEF and (session := self._idle()):
            with suppress(ConnectionLost):  # the server gave it up
                return await session.checksum(algorithm, start, end)
        # On a session of its own: a server does nothing else while it computes, and a fetch may begin meanwhile.
        if self._aside is None or not self._aside.usable:
            self._aside = await self._open_session()
            self._aside.data.forget()
        return await self._aside.checksum(algorithm, start, end)

    def _idle(self) -> Session | None:
        """The session that fetches while it does not: asking there saves the round trips that one aside takes."""
        return None if self._aside or self._fetching else self._session

    async def close(self) -> None:
        self._drop()
        if self._aside:
            self._aside.close()
        if self._sessions:
            await self._sessions.close()
        await asyncio.sleep(0)  # the loop closes the sockets in its next round

    def _drop(self) -> None:
        if self._channel:
            self._channel.close()
            self._channel = None
        if self._session:
            self._session.close()
