"""A GridFTP server that takes part in a collect job, with its sessions for queries; `channels` moves the bytes.

The sessions that move bytes count in the limit of connections that all coget processes of this machine share.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TypeVar

from coalloc.collect.runtime.holder import Holder
from coalloc.engine.base import EngineOptions
from coalloc.engine.gridftp.storage import Storage, open_storage
from coalloc.engine.limits.server_slots import Lease
from coalloc.engine.sessions.replica_session import server_of
from coalloc.errors import ConnectionLost, NoFreeConnection, SourceError
from coalloc.model.replicas import Stat

__all__ = ["CollectServer"]

T = TypeVar("T")
SESSIONS = 4
"""Maximum number of sessions for queries per server; in each session, the server computes one checksum at a time."""


class CollectServer(Holder):
    """One GridFTP server; the parameters are those of `Holder`."""

    def __init__(self, label: str, url: str, options: EngineOptions) -> None:
        super().__init__(label, url, options)
        self._idle: list[Storage] = []
        self._turn = asyncio.Semaphore(SESSIONS)
        self.name = server_of(url) or ""
        """HOST:PORT, by which its connections are counted."""
        self._waiting = 0
        """Number of sessions that wait for a free connection."""

    @property
    def wait(self) -> str | None:
        slots = self.options.slots
        return NoFreeConnection(self.name, slots.most, self._counted).message if slots and self._waiting else None

    def take(self) -> Lease | None:
        """Take a connection for moving data; None if this machine has all permitted ones."""
        return self.options.slots.take(self.name) if self.options.slots else Lease()

    async def lease(self) -> Lease:
        """Take a connection for moving data, as soon as one is free."""
        return self.take() or await self._counted()

    async def _counted(self) -> Lease:
        assert self.options.slots
        self._waiting += 1
        try:
            return await self.options.slots.wait(self.name)
        finally:
            self._waiting -= 1

    @property
    def wanted(self) -> bool:
        """Return whether sessions of this machine wait for a connection to the server."""
        return self.options.slots is not None and self.options.slots.wanted(self.name)

    async def ask(self, question: Callable[[Storage], Awaitable[T]]) -> T:
        """Run a query in an open session; in a new one if there is none, or if the server has closed it.

        :raises SourceError: raised by the query, or when the login fails
        """
        async with self._turn:
            while self._idle:
                store = self._idle.pop()
                if store.usable:
                    with suppress(ConnectionLost):
                        return await self._in(store, question)
            return await self._in(await open_storage(self.url, self.options), question)

    async def stat_now(self, path: str) -> Stat:
        return await self.ask(lambda store: store.state(path))

    async def checksum(self, path: str, algorithm: str, start: int, end: int) -> str | None:
        return await self.ask(lambda store: store.checksum(path, algorithm, start, end))

    async def _in(self, store: Storage, question: Callable[[Storage], Awaitable[T]]) -> T:
        try:
            answer = await question(store)
        except SourceError:
            self._keep(store)
            raise
        except BaseException:
            store.close()
            raise
        self._keep(store)
        return answer

    def _keep(self, store: Storage) -> None:
        if store.usable:
            self._idle.append(store)

    async def trouble(self) -> SourceError | None:
        try:
            async with await open_storage(self.url, self.options):
                return None
        except SourceError as error:
            return error

    async def close(self) -> None:
        while self._idle:
            self._idle.pop().close()
        await asyncio.sleep(0)  # the loop closes the sockets in its next iteration
