"""A server that only sends files in a collect job: a web server, an S3 service, an FTP server over TLS.

It is read by the engine of its scheme. Each file has one version in a job, that of the first answer; when the server
states another one, the file fails, so that no file is a mixture of two versions.
"""

import asyncio
from collections import defaultdict, deque
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass

from coalloc.collect.runtime.channels import Inward
from coalloc.collect.runtime.holder import Holder
from coalloc.collect.runtime.link_waits import LinkWaits
from coalloc.collect.runtime.local_destination import LocalDestination
from coalloc.engine import open_source
from coalloc.engine.base import EngineOptions, Source
from coalloc.engine.gridftp.transfer import StoredCallback
from coalloc.engine.span import Deliver, PacedSpan, Span
from coalloc.errors import (
    ConnectionLost,
    NoFreeConnection,
    ReplicaChanged,
    SourceError,
    Stalled,
    UnknownHost,
    Unreachable,
)
from coalloc.model.replicas import Stat
from coalloc.model.validators import same_version
from coalloc.safe_text import redact

__all__ = ["AT_ONCE", "ReadOnlyInward", "ReadOnlyServer"]

AT_ONCE, IDLE = 16, 8
"""Maximum number of files that are queried or fetched at the same time, and of idle sessions, per server."""
COMPUTING = ("ftpes", "ftps")
"""Schemes of servers that may compute checksums; all others state them with the file, or have none."""
LINGER = 2.0
"""Seconds after which an idle session is closed, as it takes a connection that others may wait for."""


@dataclass
class _HeldFile:
    """A file: its URL, the options for it, and the first answer about it."""

    url: str
    options: EngineOptions
    stat: Stat | None = None


class ReadOnlyServer(Holder):
    """One server; the parameters are those of `Holder`. Files must be added before they are asked for."""

    def __init__(self, label: str, url: str, options: EngineOptions) -> None:
        super().__init__(label, url, options)
        self._files: dict[str, _HeldFile] = {}
        self._idle = deque[tuple[str, Source]]()
        self._turn = asyncio.Semaphore(AT_ONCE)
        self._closing: asyncio.Task[None] | None = None
        self.waiting = 0
        """Number of sessions that wait for a free connection."""
        self._reason = ""

    @property
    def wait(self) -> str | None:
        return self._reason if self.waiting else None

    def add(self, path: str, url: str, options: EngineOptions) -> None:
        """Add a file. If it was added before, keep its earlier URL and options."""
        self._files.setdefault(path, _HeldFile(url, options))

    async def stat(self, path: str) -> Stat:
        """Return the first answer about a file; ask the server if there was none yet."""
        file = self._files[path]
        if file.stat is None:
            async with self.session(path):
                pass
        assert file.stat
        return file.stat

    @asynccontextmanager
    async def session(self, path: str) -> AsyncIterator[Source]:
        """Yield an open session for a file.

        :raises ReplicaChanged: when it is another version than the first answer described
        :raises SourceError: when it cannot be opened
        """
        async with self._turn:
            source = self._kept(path) or await self._opened(path)
            try:
                yield source
            except BaseException:
                await source.close()
                raise
            self._idle.append((path, source))
            if self._closing is None or self._closing.done():
                self._closing = asyncio.create_task(self._close_idle())
            while self._idle and (len(self._idle) > IDLE or self.waiting or source.wanted):
                await self._idle.popleft()[1].close()

    async def _close_idle(self) -> None:
        """Close each session that is idle for `LINGER`, until none is left."""
        while idle := list(self._idle):
            await asyncio.sleep(LINGER)
            while old := next((each for each in self._idle if each in idle), None):
                self._idle.remove(old)
                await old[1].close()

    def _kept(self, path: str) -> Source | None:
        found = next((each for each in self._idle if each[0] == path), None)
        if found is None:
            return None
        self._idle.remove(found)
        return found[1]

    async def _opened(self, path: str) -> Source:
        file = self._files[path]
        source = open_source(file.url, "auto", file.options)
        try:
            self._compare(file, await self._answer(source))
        except BaseException:
            await source.close()
            raise
        return source

    async def _answer(self, source: Source) -> Stat:
        """Open a session, after a wait if this machine has all permitted connections to the server."""
        while True:
            try:
                return await source.open()
            except NoFreeConnection as error:
                self.waiting += 1
                self._reason = error.message
                try:
                    while self._idle:
                        await self._idle.popleft()[1].close()
                    await error.until_free()
                finally:
                    self.waiting -= 1

    def _compare(self, file: _HeldFile, stat: Stat) -> None:
        first = file.stat = file.stat or stat
        known = stat.validator and first.validator
        if stat.size != first.size or (known and not same_version(str(first.validator), str(stat.validator))):
            changed = f"{redact(file.url)} changed during the collect job"
            raise ReplicaChanged(changed, "run the same command again")

    async def stat_now(self, path: str) -> Stat:
        file = self._files[path]
        async with self.session(path) as source:
            if now := await source.recheck():
                self._compare(file, now)
        assert file.stat
        return file.stat

    async def checksum(self, path: str, algorithm: str, start: int, end: int) -> str | None:
        """Return the digest that the server states, or computes if it is an FTP server; None if it has none.

        :raises ReplicaChanged: when an FTP server has another version of the file
        """
        if self.url.partition("://")[0].lower() not in COMPUTING:
            stat = await self.stat(path)
            stated = (each.value for each in stat.checksums if each.algorithm == algorithm)
            return next(stated, None) if (start, end) == (0, stat.size) else None
        try:
            async with self.session(path) as source:
                return await source.checksum(algorithm, start, end)
        except ReplicaChanged:
            raise
        except SourceError:  # all bytes may be here, and the expected checksum known
            return None

    async def trouble(self) -> SourceError | None:
        try:
            if path := next(iter(self._files), None):
                await (await self._opened(path)).close()
        except (ConnectionLost, Stalled, UnknownHost, Unreachable) as error:
            return error
        except SourceError:  # the server has answered
            pass
        return None

    async def close(self) -> None:
        if self._closing:
            self._closing.cancel()
            await asyncio.wait({self._closing})
        while self._idle:
            await self._idle.popleft()[1].close()


class ReadOnlyInward(Inward):
    """A channel from such a server to this machine, with a session for each piece in flight.

    If the server can only send whole files, one reading of a file serves all of its pieces. It goes on while no piece
    is waited for, as another one would begin with the first byte again.
    """

    def __init__(self, source: ReadOnlyServer, here: LocalDestination, waits: LinkWaits) -> None:
        super().__init__(source, here, waits)
        self._server = source
        self._readings: dict[str, asyncio.Task[None]] = {}
        self._awaited: defaultdict[str, list[_AwaitedPiece]] = defaultdict(list)

    @property
    def queues(self) -> bool:
        return True

    async def copy(self, source: str, sink: str, start: int, end: int, received: StoredCallback) -> None:
        if (await self._server.stat(source)).ranged:
            await super().copy(source, sink, start, end, received)
            return
        piece = _AwaitedPiece(start, end, received)
        self._awaited[sink].append(piece)
        try:
            while self._here.missing(sink, start, end):
                await self._progress(source, sink, piece)
        finally:
            self._awaited[sink].remove(piece)

    async def _progress(self, source: str, sink: str, piece: "_AwaitedPiece") -> None:
        """Wait until a piece is complete, or the reading of its file ends; begin one if there is none.

        :raises SourceError: or a SinkError, when the reading fails
        """
        reading = self._readings.get(sink)
        if reading is None or reading.done():
            reading = self._readings[sink] = asyncio.create_task(self._read(source, sink))
            reading.add_done_callback(lambda task: task.cancelled() or task.exception())
        piece.complete.clear()
        complete = asyncio.ensure_future(piece.complete.wait())
        try:
            await asyncio.wait({reading, complete}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            complete.cancel()
        if not piece.complete.is_set():
            reading.result()

    async def _read(self, source: str, sink: str) -> None:
        """Read a file from its first byte to the last, unless it is complete before."""
        size = (await self._server.stat(source)).size

        def deliver(start: int, end: int, data: memoryview | None) -> None:
            assert data is not None, "these channels end at this machine"
            self._note_progress()
            if not (self._here.is_open(sink) and self._here.missing(sink, 0, size)):
                raise _FileComplete
            for gap in self._here.missing(sink, start, end):
                self._here.write(sink, self._server.label, gap[0], data[gap[0] - start : gap[1] - start])
                for piece in list(self._awaited[sink]):
                    piece.received(*gap)
            for piece in self._awaited[sink]:
                if not self._here.missing(sink, piece.start, piece.end):
                    piece.complete.set()

        span = Span(0, size)
        if admission := self._holder.options.admission:
            span = PacedSpan(span, admission.piece, self._admit)
        with suppress(_FileComplete):
            await self._fetch_part(source, span, deliver)

    async def _fetch(self, path: str, span: Span, deliver: Deliver) -> None:
        async with AsyncExitStack() as stack:
            with self._waits.waiting():  # for a free connection, without a limit
                source = await stack.enter_async_context(self._server.session(path))
            await self._watched(source.fetch(span, deliver), span)

    def close(self) -> None:
        """End the readings; the server closes the sessions."""
        for reading in self._readings.values():
            reading.cancel()


class _FileComplete(Exception):
    """The end of a reading whose file is complete."""


class _AwaitedPiece:
    """A piece that waits for the reading of its file."""

    def __init__(self, start: int, end: int, received: StoredCallback) -> None:
        self.start = start
        self.end = end
        self.complete = asyncio.Event()
        self._received = received

    def received(self, start: int, end: int) -> None:
        """Report those of these bytes that belong to the piece."""
        if max(start, self.start) < min(end, self.end):
            self._received(max(start, self.start), min(end, self.end))
