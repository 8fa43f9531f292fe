"""One replica at one GridFTP server: when sessions are made, reused and dropped."""

import asyncio

from coalloc.engine.base import Deliver, EngineOptions, Source, Span
from coalloc.engine.gridftp import stream
from coalloc.engine.gridftp.address import parse
from coalloc.engine.gridftp.gsi import GridSecurity
from coalloc.engine.gridftp.modee import BlockChannel, NoWayBack
from coalloc.engine.gridftp.session import Session
from coalloc.errors import ConnectionLost, ReplicaChanged
from coalloc.model import Stat

__all__ = ["GridFTPSource"]


class GridFTPSource(Source):
    """A file at a GridFTP or FTP server. Its control connection is kept between ranges.

    :raises UsageError: when the URL names no file at a server
    """

    def __init__(self, url: str, options: EngineOptions) -> None:
        super().__init__(url, options)
        self._address = parse(url)
        self._session: Session | None = None
        self._aside: Session | None = None
        self._channel: BlockChannel | None = None
        self._pipelined = True
        self._blocks = options.streams > 1
        self._agreed: Stat | None = None

    async def open(self) -> Stat:
        session = await self._connected()
        self._agreed = session.stat
        return session.stat

    async def _open_session(self) -> Session:
        security = GridSecurity(self._address) if self._address.scheme == "gsiftp" else None
        session = await Session.open(self._address, self.options, security, self._pipelined)
        self._pipelined = session.pipelined
        return session

    async def _connected(self) -> Session:
        """A new session in place of the one before."""
        self._drop()
        self._session = await self._open_session()
        return self._session

    async def fetch(self, span: Span, deliver: Deliver) -> None:
        if span.start >= span.end:
            return
        session = await self._usable_session()
        if self._blocks:
            await self._fetch_blocks(session, span, deliver)
        else:
            await self._fetch_stream(session, span, deliver)

    async def _fetch_blocks(self, session: Session, span: Span, deliver: Deliver) -> None:
        if self._channel is None:
            self._channel = BlockChannel(session, self.options.streams)
        try:
            await self._channel.fetch(span, deliver)
        except NoWayBack:
            self._blocks = False
            await self._fetch_stream(await self._reopened(), span, deliver)

    async def _fetch_stream(self, session: Session, span: Span, deliver: Deliver) -> None:
        try:
            data = await session.connect_data()
        except ConnectionLost:  # the server gave up the idle session
            session = await self._reopened()
            data = await session.connect_data()
        await stream.fetch(session, data, span, deliver)

    async def _usable_session(self) -> Session:
        if self._session and self._session.usable:
            return self._session
        return await self._reopened()

    async def _reopened(self) -> Session:
        """A new session about the file that `open` saw."""
        session = await self._connected()
        if self._agreed and session.stat != self._agreed:
            raise ReplicaChanged(f"{self._address.shown} changed while it was fetched", "start again")
        return session

    async def checksum(self, algorithm: str, start: int, end: int) -> str | None:
        # On a session of its own: a server does nothing else while it computes, and a fetch may begin meanwhile.
        if self._aside is None or not self._aside.usable:
            self._aside = await self._open_session()
        return await self._aside.checksum(algorithm, start, end)

    async def close(self) -> None:
        self._drop()
        if self._aside:
            self._aside.close()
        await asyncio.sleep(0)  # the loop closes the sockets in its next round

    def _drop(self) -> None:
        if self._channel:
            self._channel.close()
            self._channel = None
        if self._session:
            self._session.close()
