"""One replica at one GridFTP server: it makes, reuses and drops sessions, and chooses the mode of data connections.

The first session begins in stream mode, which every server and firewall supports. Each further session with a distant
server keeps one data connection, made by the server (`block_channel`). Once that has worked, so does the first session.
"""

import asyncio
import logging
from contextlib import suppress
from dataclasses import dataclass

from coalloc.engine.base import EngineOptions, Source
from coalloc.engine.gridftp import stream
from coalloc.engine.gridftp.address import parse
from coalloc.engine.gridftp.block_channel import BlockChannel, BlockModeUnavailable
from coalloc.engine.gridftp.control import ControlConnection
from coalloc.engine.gridftp.data_connections import ComingConnection
from coalloc.engine.gridftp.login import security_for
from coalloc.engine.gridftp.session import Session
from coalloc.engine.span import Deliver, Span
from coalloc.errors import ConnectionLost, ReplicaChanged, Stalled, Unreachable, Unsupported
from coalloc.model.replicas import Stat
from coalloc.model.routes import PathState
from coalloc.util.tcp_info import path_state_of

__all__ = ["FAR", "GridFTPFindings", "GridFTPSource"]

FAR = 0.01
"""Round-trip time in seconds above which a new data connection for each range costs too much."""
BRIEF = 4 << 20
"""Maximum bytes of a range that takes so little time that a fetch can wait for its checksum, and that may be followed
by such questions ahead of need."""


log = logging.getLogger(__name__)


@dataclass(slots=True)
class GridFTPFindings:
    """Findings that the sessions with one replica share.

    `pipelined`: the server accepts pipelined commands. `connects_back`: it can connect to this machine; None if
    not tried yet. `answers`: a data connection to it was made. `rtt`: round-trip time in seconds, once the server was
    reached. `begun`: number of fetches so far, of which `running` have not ended.
    """

    rtt: float | None = None
    pipelined: bool = True
    connects_back: bool | None = None
    answers: bool = False
    begun: int = 0
    running: int = 0


class GridFTPSource(Source):
    """One session for a file at a GridFTP or FTP server. Its control connection is kept between ranges.

    :param known: findings shared with other sessions for the same file
    :param number: number of this session, from 0; sessions from `options.streams` on fail if they need stream mode
    :raises UsageError: when the URL names no file at a server
    """

    def __init__(
        self,
        url: str,
        options: EngineOptions,
        known: GridFTPFindings | None = None,
        number: int = 0,
    ) -> None:
        super().__init__(url, options)
        self._address = parse(url)
        self._known = known or GridFTPFindings()
        self._number = number
        self._session: Session | None = None
        self._aside: Session | None = None
        self._opening_aside = asyncio.Lock()
        self._aside_queries = 0
        self._fetching = 0
        self._streaming = asyncio.Lock()
        self._channel: BlockChannel | None = None
        self._data: ComingConnection | None = None
        self._agreed: Stat | None = None
        self._relayed = False

    @property
    def path(self) -> str:
        """The file's path at the server: absolute, or `/~/` and a path from the login directory."""
        return self._address.named

    async def open(self) -> Stat:
        self._agreed = (await self._connected()).stat
        return self._agreed

    async def _open_session(self) -> Session:
        session = await Session.open(
            self._address,
            self.options,
            security_for(self._address, self.options, self.options.proxy),
            self._reached,
            self._known.pipelined,
        )
        self._known.pipelined = session.pipelined
        session.data.answers = self._known.answers
        return session

    def _reached(self, control: ControlConnection) -> None:
        self._known.rtt = control.round_trip
        self._relayed = control.relayed

    async def _connected(self) -> Session:
        """Replace the session by a new one, and return it."""
        self._drop()
        self._session = await self._open_session()
        return self._session

    async def fetch(self, span: Span, deliver: Deliver) -> None:
        if span.start >= span.end:
            return
        self._fetching += 1
        self._known.begun += 1
        self._known.running += 1
        try:
            if not (self._keeps and await self._fetch_persistent(span, deliver)):
                async with self._streaming:
                    await self._fetch_stream(await self._usable_session(), span, deliver)
        finally:
            self._fetching -= 1
            self._known.running -= 1

    @property
    def path_state(self) -> PathState | None:
        if self._channel:
            return self._channel.path_state
        if self._data and self._data.sock:
            return path_state_of(self._data.sock)
        return PathState(self._known.rtt) if self._known.rtt else None

    @property
    def queues(self) -> bool:
        return self._keeps and not self._streaming.locked()

    @property
    def will_queue(self) -> bool:
        return self._may_keep and not self.queues

    @property
    def _may_keep(self) -> bool:
        """Return whether a persistent data connection is worthwhile, and may be possible."""
        far = self._session is not None and (self._session.stat.rtt or 0.0) >= FAR and self._session.sends_blocks
        return far and self._known.connects_back is not False and not self._relayed

    @property
    def _keeps(self) -> bool:
        """Return whether this session should use a persistent data connection."""
        return self._may_keep and (self._known.connects_back is True or self._number > 0)

    async def _fetch_persistent(self, span: Span, deliver: Deliver) -> bool:
        """Fetch over the persistent connection; return False if it is impossible.

        :raises Unsupported: if it is impossible, and this session is an additional one, which would only disturb others
        """
        channel = await self._usable_channel()
        try:
            await channel.fetch(span, deliver)
        except BlockModeUnavailable:
            if self._channel is channel:
                self._drop()
            if self._known.connects_back is None:
                self._known.connects_back = False
                log.debug("%s cannot connect to this machine: one stream", self._address.shown)
            if self._number >= self.options.streams:
                raise Unsupported(
                    f"{self._address.shown}: the server cannot connect to this machine",
                    "allow its connections in the firewall",
                ) from None
            return False
        if channel.reused:
            self._known.connects_back = True
        return True

    async def _fetch_stream(self, session: Session, span: Span, deliver: Deliver) -> None:
        try:
            self._data = await session.data.take()
        except ConnectionLost:  # the server closed the idle session
            session = await self._reopened()
            self._data = await session.data.take()
        try:
            last = self._known.begun if self._is_last(session, span) else None
            await stream.fetch(session, self._data, span, deliver, last)
        except Unreachable:  # the server closed the idle session, and the port that it had opened
            session = await self._reopened()
            self._data = await session.data.take()
            await stream.fetch(session, self._data, span, deliver)
        finally:
            self._data = None
            self._known.answers |= session.data.answers

    def _is_last(self, session: Session, span: Span) -> bool:
        """Return whether this range is brief, and probably the last one to be fetched from the replica."""
        return span.end - span.start <= BRIEF and span.end == session.stat.size and self._known.running == 1

    async def _usable_channel(self) -> BlockChannel:
        """Return the persistent data connection, or a new one in a new session, for the file that `open` saw."""
        async with self._streaming:  # so that two ranges requested at once share a channel
            session = await self._usable_session()
            if self._channel is None:
                self._channel = BlockChannel(session)
            return self._channel

    async def _usable_session(self) -> Session:
        if self._session and self._session.usable and (self._channel is None or self._channel.usable):
            return self._session
        return await self._reopened()

    async def _reopened(self) -> Session:
        """Return a new session for the file that `open` saw."""
        session = await self._connected()
        self._check_unchanged(session.stat)
        return session

    def _check_unchanged(self, stat: Stat) -> None:
        if self._agreed and (stat.size, stat.validator) != (self._agreed.size, self._agreed.validator):
            raise ReplicaChanged(f"{self._address.shown} changed while it was fetched", "start again")

    async def checksum(self, algorithm: str, start: int, end: int) -> str | None:
        if end - start <= BRIEF and (session := self._idle()):
            with suppress(ConnectionLost):  # the server closed the idle session
                return await session.checksum(algorithm, start, end)
        # Use a separate session, as a fetch may begin meanwhile, and a session does nothing else during a checksum.
        self._aside_queries += 1
        try:
            return await (await self._usable_aside()).checksum(algorithm, start, end)
        finally:
            self._aside_queries -= 1

    async def _usable_aside(self) -> Session:
        async with self._opening_aside:
            if self._aside is None or not self._aside.usable:
                self._aside = await self._open_session()
                self._aside.data.forget()
            return self._aside

    async def recheck(self) -> Stat:
        if self._session and self._session.usable:
            with suppress(ConnectionLost, Stalled):  # the server closed the idle session
                early = await self._session.stat_after(self._known.begun)
                return early or await self._session.ask_again()
        return (await self._connected()).stat

    def _idle(self) -> Session | None:
        """Return the fetching session if it is idle, which saves the round trips of opening a separate one."""
        return None if self._aside or self._fetching else self._session

    async def close(self) -> None:
        self._drop()
        if self._aside:
            self._aside.close()
        await asyncio.sleep(0)  # the loop closes the sockets in its next round

    async def rest(self) -> None:
        if self._session:
            self._session.quit()
        self._drop()
        if self._aside and not self._aside_queries:
            self._aside.quit()
        await asyncio.sleep(0)

    def _drop(self) -> None:
        if self._channel:
            self._channel.close()
            self._channel = None
        if self._session:
            self._session.close()
