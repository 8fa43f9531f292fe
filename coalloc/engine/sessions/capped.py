"""A session that connects only while it holds a slot, which limits the load of all coget processes on a server.

It holds its slot from `open` to `close`, and releases it on failure. The caller of `open` waits for a slot, if needed.
"""

import asyncio
from urllib.parse import quote, urlsplit

from coalloc.engine.base import Source
from coalloc.engine.limits.server_slots import Lease, Slots
from coalloc.engine.span import Deliver, Span
from coalloc.errors import NoFreeConnection
from coalloc.model import PathState, Stat

__all__ = ["capped", "server_of"]

PORTS = {"ftp": 21, "sshftp": 22, "http": 80, "https": 443, "gsiftp": 2811}
LONGEST = 180
"""Maximum characters of a host in a file name."""
LOOK_SECONDS = 0.5
"""Seconds between checks whether others wait for a slot; the property may be read more often."""


def capped(source: Source, *, on_loan: bool) -> Source:
    """Return `source`, limited by slots if slots are in use and its URL names a server.

    :param on_loan: whether the source gives its slot back when others wait for one
    """
    slots, server = source.options.slots, server_of(source.url)
    return _Capped(source, slots, server, on_loan) if slots and server else source


def server_of(url: str) -> str | None:
    """Return HOST:PORT, usable as a file name; None when the URL names no host.

    >>> server_of("gsiftp://Host.example/x"), server_of("s3://bucket/x"), server_of("file:///x")
    ('host.example:2811', 'bucket:s3', None)
    """
    parts = urlsplit(url)
    if not parts.hostname:
        return None
    return f"{quote(parts.hostname, safe=':')[:LONGEST]}:{parts.port or PORTS.get(parts.scheme) or parts.scheme}"


class _Capped(Source):
    """A source that takes a slot before it connects.

    The second connection of a GridFTP source, for checksums, needs no slot: no data go over it, and two sessions that
    each hold a slot and wait for a second one would deadlock.
    """

    def __init__(self, source: Source, slots: Slots, server: str, on_loan: bool) -> None:
        super().__init__(source.url, source.options)
        self._source = source
        self._slots = slots
        self._server = server
        self._on_loan = on_loan
        self._lease: Lease | None = None
        self._wanted = False
        self._look_at = 0.0

    async def open(self) -> Stat:
        """Take a slot, and connect.

        :raises NoFreeConnection: when all slots are taken, or others wait for them
        """
        self._take()
        self._wanted = False
        try:
            return await self._source.open()
        except BaseException:
            await self.close()
            raise

    def _take(self) -> None:
        self._lease = self._lease or self._slots.take(self._server)
        if self._lease is None:
            raise NoFreeConnection(self._server, self._slots.most, self._wait)

    async def _wait(self) -> None:
        self._lease = self._lease or await self._slots.wait(self._server)

    async def fetch(self, span: Span, deliver: Deliver) -> None:
        self._take()
        try:
            await self._source.fetch(span, deliver)
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
    def recalled(self) -> bool:
        return self._on_loan and self._is_wanted()

    @property
    def wanted(self) -> bool:
        return self._lease is not None and self._is_wanted()

    def _is_wanted(self) -> bool:
        """Return whether others wait for a connection to the server, as of at most LOOK_SECONDS ago."""
        now = asyncio.get_running_loop().time()
        if now >= self._look_at:
            self._wanted, self._look_at = self._slots.wanted(self._server), now + LOOK_SECONDS
        return self._wanted

    async def checksum(self, algorithm: str, start: int, end: int) -> str | None:
        return await self._source.checksum(algorithm, start, end)

    async def recheck(self) -> Stat | None:
        self._take()
        return await self._source.recheck()

    async def close(self) -> None:
        try:
            await self._source.close()
        finally:
            self._release()

    async def rest(self) -> None:
        try:
            await self._source.rest()
        finally:
            self._release()

    def _release(self) -> None:
        if self._lease:
            self._lease.release()
            self._lease = None
