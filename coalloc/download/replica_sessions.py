"""The sessions with one replica for random reads: one for each concurrent read, kept open for the next one."""

import asyncio
from collections.abc import Awaitable, Callable

from coalloc.download.reader_pool import ReaderPool
from coalloc.engine.base import Source
from coalloc.engine.sessions.replica_session import server_of
from coalloc.engine.span import Span
from coalloc.errors import ConnectionLost, NoFreeConnection, ReplicaChanged, SourceError, Stalled, Unsupported
from coalloc.model.forecasts import Estimate
from coalloc.model.replicas import Stat
from coalloc.safe_text import redact

__all__ = ["MOST", "SILENCE", "ReplicaRead", "ReplicaSessions"]

MOST = 8
"""Most sessions with one replica."""
SILENCE = 15.0
"""Seconds without a byte after which a read has failed."""
CHECKED_SECONDS = 1.0
"""Seconds for which a version is trusted if the answers to reads do not show it, or another replica joins."""


class ReplicaRead:
    """One read of one replica.

    :param begun_at: time of its beginning
    :ivar asked_at: time of its request; None while its session connects
    :ivar late: whether a second replica was asked, as this one was late
    """

    def __init__(self, replica: "ReplicaSessions", start: int, end: int, begun_at: float) -> None:
        self.replica = replica
        self.start = start
        self.end = end
        self.begun_at = begun_at
        self.asked_at: float | None = None
        self.late = False

    @property
    def nbytes(self) -> int:
        """Number of bytes."""
        return self.end - self.start


class ReplicaSessions:
    """The sessions with one replica.

    :param make: returns a new session, not connected yet
    :param agree: checks each answer about the replica; raises an error if it is of another file or version
    :param join: `await join()` before the first answer is used; raises an error if the file may be another one by now
    :param is_wrong: tells whether bytes from an offset on contradict known hashes
    :param estimate: prediction from earlier transfers
    :param pool: the idle sessions of all readers
    :ivar stat: newest answer about the replica; None if it has not been connected
    :ivar opening_seconds: time in which the newest session was ready
    :ivar busy: number of reads under way
    :ivar error: the last error
    :ivar failures: number of consecutive failures
    :ivar dropped: whether the replica is not used any more
    :ivar pausing_until: time before which a replica that failed is not asked
    """

    def __init__(
        self,
        url: str,
        make: Callable[[], Source],
        agree: Callable[[Stat], None],
        join: Callable[[], Awaitable[None]],
        is_wrong: Callable[[int, bytes], bool],
        estimate: Estimate,
        pool: ReaderPool,
    ) -> None:
        self.url = url
        self.server = server_of(url) or url
        self.estimate = estimate
        self.stat: Stat | None = None
        self.opening_seconds = 0.0
        self.busy = 0
        self.error: SourceError | None = None
        self.failures = 0
        self.dropped = False
        self.pausing_until = 0.0
        self._make = make
        self._agree = agree
        self._join = join
        self._is_wrong = is_wrong
        self._pool = pool
        self._idle: list[Source] = []
        self._open: set[Source] = set()
        self._returned = asyncio.Event()
        """Whether a session was returned since a read began to wait for one."""
        self._places = asyncio.Semaphore(MOST)
        self._time = asyncio.get_running_loop().time
        self._checked_at = 0.0

    @property
    def has_sessions(self) -> bool:
        """Return whether a session is open."""
        return bool(self._open)

    async def connect(self) -> None:
        """Open the first session.

        :raises CoallocError: if the server cannot be used, or has another file
        """
        async with self._places:
            await self._keep(await self._session())

    async def read(self, read: ReplicaRead) -> bytes:
        """Return the bytes of a read. Its session is used again, unless the read was late or failed.

        :raises SourceError: if it fails
        """
        self.busy += 1
        try:
            async with self._places:
                session = await self._session()
                try:
                    data = await self._read(session, read)
                except BaseException as error:
                    if read.late or not isinstance(error, asyncio.CancelledError):
                        await self._discard(session)
                    else:
                        await self._keep(session)
                    raise
                await self._keep(session)
                return data
        finally:
            self.busy -= 1

    async def ask_again(self) -> None:
        """Compare the replica with its first answer, by a new session, unless that was just done.

        :raises ReplicaChanged: if it is another version by now
        :raises CoallocError: if it does not answer
        """
        if self._time() < self._checked_at + CHECKED_SECONDS:
            return
        session = self._make()
        try:
            self._agree(await session.open())
        finally:
            await session.close()

    async def _session(self) -> Source:
        """Return an idle session, or a new one. If this machine has all that are permitted, wait for one."""
        while not self._idle:  # also if another read has taken the one that became idle
            made = self._make()
            try:
                if stat := await self._connected(made):
                    self._open.add(made)
                    if self.stat is None:
                        await self._join()
                    self._agreed(stat)
                    return made
            except BaseException:
                await self._discard(made)
                raise
            await made.close()
        session = self._idle.pop()
        self._pool.remove(session)
        return session

    async def _connected(self, session: Source) -> Stat | None:
        """Connect a session; return None if another one has become idle before it may connect."""
        while not self._idle:
            began = self._time()
            try:
                stat = await session.open()
            except NoFreeConnection as error:
                await self._wait(error)
            else:
                self.opening_seconds = self._time() - began
                return stat
        return None

    async def _wait(self, error: NoFreeConnection) -> None:
        """Wait until a session may be free: one of this replica, of another reader, or of another process."""
        if self._open:
            self._returned.clear()
            if not self._idle:
                await self._returned.wait()
        elif not await self._pool.make_room(self.server):
            with self._pool.waiting(self.server):
                await error.until_free()

    def _agreed(self, stat: Stat) -> None:
        """Check the answer of a new session.

        :raises CoallocError: if it is of another file, or the server cannot be used
        """
        self._agree(stat)
        if not stat.ranged and stat.size:
            raise Unsupported(
                f"{redact(self.url)}: the server cannot send parts of the file", "download it, or use a replica"
            )
        self.stat, self._checked_at = stat, self._time()

    async def _read(self, session: Source, read: ReplicaRead) -> bytes:
        received = bytearray(read.nbytes)
        read.asked_at = self._time()
        try:
            async with asyncio.timeout(SILENCE) as limit:

                def deliver(start: int, end: int, data: memoryview | None) -> None:
                    assert data is not None, "these engines deliver bytes"
                    received[start - read.start : end - read.start] = data
                    if not limit.expired():
                        limit.reschedule(self._time() + SILENCE)

                await session.fetch(Span(read.start, read.end), deliver)
                await self._check_version(session, read.asked_at)
        except TimeoutError:
            raise Stalled(f"{redact(self.url)} has sent nothing for {SILENCE:.0f} s", "try again later") from None
        data = bytes(received)
        if self._is_wrong(read.start, data):
            raise ReplicaChanged(
                f"{redact(self.url)} sent bytes that contradict the hashes of the file", "leave it out"
            )
        return data

    async def _check_version(self, session: Source, asked_at: float) -> None:
        """Check that the replica is unchanged: by the answer itself, or by a query if the last one was long ago."""
        now = self._time()
        if session.unchanged_at >= asked_at:
            self._checked_at = now
        elif now > self._checked_at + CHECKED_SECONDS:
            if stat := await session.recheck():
                self._agree(stat)
            self._checked_at = now

    async def _keep(self, session: Source) -> None:
        """Keep a session for the next read, unless others wait for its connection."""
        if session not in self._open:  # `close` was called meanwhile
            raise ConnectionLost(f"{redact(self.url)}: the file was closed", "open it again")
        if session.wanted or self._pool.is_wanted(self.server):
            await self._discard(session)
            return
        self._idle.append(session)
        self._returned.set()
        await self._pool.add(session, self.server, self._discard)

    async def _discard(self, session: Source) -> None:
        self._open.discard(session)
        self._pool.remove(session)
        if session in self._idle:
            self._idle.remove(session)
        await session.close()
        self._returned.set()

    async def rest(self) -> None:
        """Close the idle sessions."""
        while self._idle:
            await self._discard(self._idle[0])

    async def close(self) -> None:
        """Close all sessions; reads under way fail."""
        while self._open:
            await self._discard(next(iter(self._open)))
