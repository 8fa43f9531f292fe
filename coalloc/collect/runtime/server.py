"""A GridFTP server that takes part in a collect job, with its sessions for queries; `channels` moves the bytes."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TypeVar

from coalloc.collect.runtime.holder import Holder
from coalloc.engine.base import EngineOptions
from coalloc.engine.gridftp.storage import Storage, open_storage
from coalloc.errors import ConnectionLost, SourceError

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

    async def size_now(self, path: str) -> int | None:
        return (await self.ask(lambda store: store.stat(path))).size

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
