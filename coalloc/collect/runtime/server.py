"""A GridFTP server that takes part in a collect job, with its sessions for queries; `channels` moves the bytes."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TypeVar

from coalloc.engine.base import EngineOptions
from coalloc.engine.gridftp.storage import Storage, open_storage
from coalloc.errors import ConnectionLost, SourceError

__all__ = ["CollectServer"]

T = TypeVar("T")
SESSIONS = 4
"""Maximum number of sessions for queries per server; in each session, the server computes one checksum at a time."""


class CollectServer:
    """One server.

    :param label: its name as a host in networks
    :param url: its URL, with user and password if needed
    """

    def __init__(self, label: str, url: str, options: EngineOptions) -> None:
        self.label = label
        self.url = url
        self.options = options
        self._idle: list[Storage] = []
        self._turn = asyncio.Semaphore(SESSIONS)

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

    async def checksum(self, path: str, algorithm: str, start: int, end: int) -> str | None:
        """Return the server's digest of bytes [start, end) in lower-case hex; None when it does not offer it."""
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
        """Return why the login fails now; None if it works."""
        try:
            async with await open_storage(self.url, self.options):
                return None
        except SourceError as error:
            return error

    async def close(self) -> None:
        """End all sessions; may be called twice."""
        while self._idle:
            self._idle.pop().close()
        await asyncio.sleep(0)  # the loop closes the sockets in its next iteration
