"""A session that connects only while it has a slot, so that all cogets of a machine together spare a server.

It holds its slot from `open` to `close`, and gives it back when it fails. Waiting is left to whoever called `open`.
"""

from urllib.parse import quote, urlsplit

from coalloc.engine.base import Deliver, Source, Span
from coalloc.engine.slots import Lease, Slots
from coalloc.errors import NoFreeConnection
from coalloc.model import Stat

__all__ = ["capped"]

PORTS = {"ftp": 21, "sshftp": 22, "http": 80, "https": 443, "gsiftp": 2811}


def capped(source: Source, sessions: int = 1) -> Source:
    """`source` in need of slots, if they are counted and it is at a server at all.

    :param sessions: how many slots it takes: one for each of its streams
    """
    parts = urlsplit(source.url)
    if source.options.slots is None or not parts.hostname:
        return source
    port = parts.port or PORTS.get(parts.scheme) or parts.scheme
    return _Capped(source, source.options.slots, f"{quote(parts.hostname, safe=':')}:{port}"[:200], sessions)


class _Capped(Source):
    """Takes slots before it connects.

    The connection that a GridFTP source makes aside, to ask for a checksum, needs none: no data go over it, and two
    who hold a slot each and wait for a second one would wait for ever.
    """

    def __init__(self, source: Source, slots: Slots, server: str, sessions: int) -> None:
        super().__init__(source.url, source.options)
        self._source = source
        self._slots = slots
        self._server = server
        self._sessions = sessions
        self._lease: Lease | None = None

    async def open(self) -> Stat:
        """As every engine's.

        :raises NoFreeConnection: when others have all slots, or wait for them
        """
        self._take()
        try:
            return await self._source.open()
        except BaseException:
            await self.close()
            raise

    def _take(self) -> None:
        self._lease = self._lease or self._slots.take(self._server, self._sessions)
        if self._lease is None:
            raise NoFreeConnection(self._server, self._slots.most, self._wait)

    async def _wait(self) -> None:
        self._lease = self._lease or await self._slots.wait(self._server, self._sessions)

    async def fetch(self, span: Span, deliver: Deliver) -> None:
        self._take()
        try:
            await self._source.fetch(span, deliver)
        except Exception:
            await self.close()
            raise

    async def checksum(self, algorithm: str, start: int, end: int) -> str | None:
        return await self._source.checksum(algorithm, start, end)

    async def close(self) -> None:
        await self._source.close()
        if self._lease:
            self._lease.release()
            self._lease = None
