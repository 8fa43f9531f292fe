"""A GridFTP server that takes part in a collection: sessions to ask it things, and its staging area.

Moving bytes is left to `channels`.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TypeVar

from coalloc.engine.base import EngineOptions
from coalloc.engine.gridftp.storage import Storage, open_storage
from coalloc.errors import AlreadyThere, ConnectionLost, NoSuchFile, NotEmpty, SourceError

__all__ = ["SWEEPS", "SWEEP_SECONDS", "Area", "Server"]

T = TypeVar("T")
SESSIONS = 4
"""In which a server is asked at once; it computes one checksum at a time in each."""
STAGING = ".coget-staging"
"""The directory in which every collection has one of its own, named after when it began."""
SWEEPS, SWEEP_SECONDS = 5, 0.3
"""How often, and after what pauses, something is deleted: a copy that was ended may still make it."""


class Server:
    """One server.

    :param label: what it is called among hosts
    :param url: where it is, with user and password if it needs them
    """

    def __init__(self, label: str, url: str, options: EngineOptions) -> None:
        self.label = label
        self.url = url
        self.options = options
        self._idle: list[Storage] = []
        self._turn = asyncio.Semaphore(SESSIONS)

    async def ask(self, question: Callable[[Storage], Awaitable[T]]) -> T:
        """Ask in a session that is kept; in a new one where the server has given that up.

        :raises SourceError: as the question, or when there is no login
        """
        async with self._turn:
            while self._idle:
                store = self._idle.pop()
                if store.usable:
                    with suppress(ConnectionLost):
                        return await self._in(store, question)
            return await self._in(await open_storage(self.url, self.options), question)

    async def checksum(self, path: str, algorithm: str, start: int, end: int) -> str | None:
        """The server's digest of bytes [start, end) in lower-case hex; None when it does not offer it."""
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
        """Why nobody can log in now; None if that works."""
        try:
            async with await open_storage(self.url, self.options):
                return None
        except SourceError as error:
            return error

    async def close(self) -> None:
        """End all sessions; may be called twice."""
        while self._idle:
            self._idle.pop().close()
        await asyncio.sleep(0)  # the loop closes the sockets in its next round


class Area:
    """A directory at a server for the pieces of one collection. It is made when the first one comes.

    :param folder: a directory there, in which it may be made
    :param run: names the collection
    """

    def __init__(self, server: Server, folder: str, run: str) -> None:
        self._server = server
        self._staging = f"{folder.rstrip('/')}/{STAGING}"
        self.path = f"{self._staging}/{run}"
        self._made: asyncio.Task[None] | None = None

    async def make(self) -> None:
        """See to it that it is there. Cheap after the first time."""
        if self._made is None or (self._made.done() and (self._made.cancelled() or self._made.exception())):
            self._made = asyncio.create_task(self._server.ask(self._make))
        await asyncio.shield(self._made)

    async def _make(self, store: Storage) -> None:
        for path in (self._staging, self.path):
            with suppress(AlreadyThere):
                await store.make(path)

    async def delete(self, path: str) -> None:
        """Delete a piece, whether or not it is there."""
        with suppress(SourceError):
            await self._server.ask(lambda store: store.delete(path))

    async def remove(self) -> None:
        """Remove all of it.

        :raises SourceError: when that does not work
        """
        if self._made is None:
            return
        with suppress(SourceError, asyncio.CancelledError):
            await self._made
        for sweep in range(SWEEPS):
            try:
                await self._server.ask(self._sweep)
                break
            except NoSuchFile:  # it could not be made, or somebody else has removed it
                break
            except NotEmpty:
                if sweep == SWEEPS - 1:
                    raise
                await asyncio.sleep(SWEEP_SECONDS)
        self._made = None
        with suppress(SourceError):  # another collection's may be in it
            await self._server.ask(lambda store: store.remove(self._staging))

    async def _sweep(self, store: Storage) -> None:
        names = [entry.name async for entries in store.list(self.path) for entry in entries]
        deleted = await asyncio.gather(*(store.delete(f"{self.path}/{name}") for name in names), return_exceptions=True)
        for error in deleted:
            if isinstance(error, BaseException) and not isinstance(error, NoSuchFile):  # deleted meanwhile
                raise error
        await store.remove(self.path)
