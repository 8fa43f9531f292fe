"""One of the sessions with a replica: it limits the load on the server, and connects further sessions at most once.

With a limit for the server, it connects only while it holds a slot, which counts for all coget processes of this
machine. It holds its slot from `open` to `close`, and releases it on failure. The caller of `open` waits for a slot.
"""

import asyncio
import time
from urllib.parse import quote, urlsplit

from coalloc.engine.base import Source
from coalloc.engine.limits.server_slots import Lease
from coalloc.engine.limits.within_process import connecting
from coalloc.engine.sessions.route_meter import RouteMeter
from coalloc.engine.span import Deliver, Span
from coalloc.errors import NoFreeConnection, ReplicaChanged, SourceError, Stalled
from coalloc.model.replicas import Stat
from coalloc.model.routes import PathState
from coalloc.safe_text import redact
from coalloc.util.addresses import USUAL_PORTS

__all__ = ["ReplicaSession", "server_of"]

LONGEST = 180
"""Maximum characters of a host in a file name."""
RECHECK = 2
"""Limit of the seconds to ask a server again, as a multiple of those to connect: it may have to be connected first."""
LOOK_SECONDS = 0.5
"""Seconds between checks whether others wait for a slot; the property may be read more often."""


def server_of(url: str) -> str | None:
    """Return HOST:PORT, usable as a file name; None when the URL names no host.

    >>> server_of("gsiftp://Host.example/x"), server_of("s3://bucket/x"), server_of("file:///x")
    ('host.example:2811', 'bucket:s3', None)
    """
    parts = urlsplit(url)
    if not parts.hostname:
        return None
    return f"{quote(parts.hostname, safe=':')[:LONGEST]}:{parts.port or USUAL_PORTS.get(parts.scheme) or parts.scheme}"


class ReplicaSession(Source):
    """A session that takes a slot before it connects, if there is a limit and its URL names a server.

    The second connection of a GridFTP source, for checksums, needs no slot: no data go over it, and two sessions that
    each hold a slot and wait for a second one would deadlock.

    :param source: the connection with the server
    :param on_loan: whether the slot is given back when others wait for one
    :param meter: measures the route of the session; None if there is only the direct one
    :ivar expected: whether ranges are divided with it in mind while it still connects
    """

    def __init__(self, source: Source, *, on_loan: bool = False, meter: RouteMeter | None = None) -> None:
        super().__init__(source.url, source.options)
        self.meter = meter
        self.expected = True
        self._source = source
        self._server = server_of(source.url) or ""
        self._slots = source.options.slots if self._server else None
        self._on_loan = on_loan
        self._lease: Lease | None = None
        self._wanted = False
        self._look_at = 0.0
        self._joining: asyncio.Task[Stat] | None = None

    async def open(self) -> Stat:
        """Take a slot, and connect.

        :raises NoFreeConnection: when all slots are taken, or others wait for them
        """
        async with connecting.here():
            self._take()
            self._wanted = False
            began = time.monotonic()
            try:
                stat = await self._source.open()
            except BaseException:
                await self.close()
                raise
        if self.meter:
            options = self._source.options
            asked = options.first.seconds(self.url, options.dialer) if options.first else 0.0
            self.meter.opened(time.monotonic() - began + asked)
        return stat

    def begin_to_join(self) -> asyncio.Task[Stat]:
        """Begin to connect, unless that was tried before."""
        if self._joining is None:
            self._joining = asyncio.create_task(self.open())
            self._joining.add_done_callback(_noted)
        return self._joining

    async def join(self, agreed: Stat) -> bool:
        """Connect a session that is not the first, unless that was tried before; return whether it can be used.

        :param agreed: the first session's answer
        :raises ReplicaChanged: when the file has another size or version than in that answer
        """
        try:
            stat = await asyncio.shield(self.begin_to_join())  # shielded, as the next range may use it
        except SourceError:
            return False
        if (stat.size, stat.validator) != (agreed.size, agreed.validator):
            raise ReplicaChanged(f"{redact(self.url)} changed while it was fetched", "start again")
        return True

    async def forget_joining(self) -> None:
        """End an attempt to connect, so that the next call of `join` makes a new one."""
        if joining := self._joining:
            self._joining = None
            joining.cancel()
            await asyncio.gather(joining, return_exceptions=True)

    def _take(self) -> None:
        if self._slots:
            self._lease = self._lease or self._slots.take(self._server)
            if self._lease is None:
                raise NoFreeConnection(self._server, self._slots.most, self._wait)

    async def _wait(self) -> None:
        assert self._slots
        self._lease = self._lease or await self._slots.wait(self._server)

    async def fetch(self, span: Span, deliver: Deliver) -> None:
        self._take()
        try:
            if self.meter is None:
                await self._source.fetch(span, deliver)
                return
            with self.meter.fetching(deliver, self) as counted:
                await self._source.fetch(span, counted)
        except Exception:
            await self.close()
            raise

    @property
    def path_state(self) -> PathState | None:
        return self._source.path_state

    @property
    def queues(self) -> bool:
        return self._source.queues

    @property
    def will_queue(self) -> bool:
        return self._source.will_queue

    @property
    def unchanged_at(self) -> float:
        return self._source.unchanged_at

    @property
    def recalled(self) -> bool:
        """Return whether other sessions of this machine wait for the connection slot that this session borrowed."""
        return self._on_loan and self._is_wanted()

    @property
    def wanted(self) -> bool:
        return self._lease is not None and self._is_wanted()

    def _is_wanted(self) -> bool:
        """Return whether others wait for a connection to the server, as of at most LOOK_SECONDS ago."""
        now = asyncio.get_running_loop().time()
        if self._slots and now >= self._look_at:
            self._wanted, self._look_at = self._slots.wanted(self._server), now + LOOK_SECONDS
        return self._wanted

    async def checksum(self, algorithm: str, start: int, end: int) -> str | None:
        return await self._source.checksum(algorithm, start, end)

    async def recheck(self) -> Stat | None:
        self._take()
        seconds = RECHECK * self._source.options.connect_seconds
        try:
            async with asyncio.timeout(seconds):  # not every engine notices a server that falls silent
                return await self._source.recheck()
        except TimeoutError:
            await self.close()
            raise Stalled(
                f"{redact(self.url)} did not answer again within {seconds:.0f} s", "try again later"
            ) from None

    async def close(self) -> None:
        try:
            await self._source.close()
        finally:
            await self._release()

    async def rest(self) -> None:
        try:
            await self._source.rest()
        finally:
            await self._release()

    async def _release(self) -> None:
        """Release the slot when the sockets of closed transports are closed, which takes a turn of the event loop."""
        lease, self._lease = self._lease, None
        if lease:
            try:
                await asyncio.sleep(0)
            finally:
                lease.release()


def _noted(task: asyncio.Task[Stat]) -> None:
    if not task.cancelled():
        task.exception()  # mark as retrieved: nobody may use the session
