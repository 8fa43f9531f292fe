"""A GridFTP server that takes part in a collection: sessions to ask it things, and its staging area.

Moving bytes is left to `channels`.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from secrets import token_hex
from typing import TypeVar

from coalloc.engine.base import EngineOptions
from coalloc.engine.gridftp.storage import Storage, open_storage
from coalloc.errors import AlreadyThere, ConnectionLost, NoSuchFile, NotEmpty, PermissionRefused, SourceError
from coalloc.model import Entry
from coalloc.partial import MARK

__all__ = ["SWEEPS", "SWEEP_SECONDS", "Area", "Server"]

T = TypeVar("T")
SESSIONS = 4
"""In which a server is asked at once; it computes one checksum at a time in each."""
STAGING = f"{MARK}staging-"
"""How the name of a staging area begins."""
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

    Others may be able to write where it is. Its name, and those of the pieces, cannot be foreseen, so that nobody has
    anything there; only pieces are deleted, and only while it is the directory that was made.

    :param folder: a directory there, in which it may be made
    :param run: names the collection, for people
    """

    def __init__(self, server: Server, folder: str, run: str) -> None:
        self._server = server
        self._above = f"{folder.rstrip('/')}/{STAGING}{run}"
        self._key = token_hex(8)
        self._pieces: dict[int, str] = {}
        self._directory: Entry | None = None
        self._made: asyncio.Task[None] | None = None

    @property
    def path(self) -> str:
        """Where it is."""
        return f"{self._above}-{self._key}"

    def piece(self, number: int) -> str:
        """Return the path of a piece, once the directory is made; who sees one cannot foresee another."""
        return f"{self.path}/{self._pieces.setdefault(number, token_hex(16))}"

    async def make(self) -> None:
        """See to it that it is there. Cheap after the first time."""
        if self._made is None or (self._made.done() and (self._made.cancelled() or self._made.exception())):
            self._made = asyncio.create_task(self._server.ask(self._make))
        await asyncio.shield(self._made)

    async def _make(self, store: Storage) -> None:
        try:
            await store.make(self.path)
        except AlreadyThere:  # by a question whose answer was lost
            self._key = token_hex(8)
            await store.make(self.path)
        self._directory = await store.stat(self.path)

    async def _look(self, store: Storage) -> None:
        """:raises PermissionRefused: when it is not the directory that was made, but what somebody put in its place"""
        made, now = self._directory, await store.stat(self.path)
        if made is None or (now.kind, now.link_target, now.unique) != ("dir", None, made.unique):
            raise PermissionRefused(
                f"{self.path} is not the directory that was made there", "look for what took its place"
            )

    async def delete(self, path: str) -> None:
        """Delete a piece, whether or not it is there."""
        with suppress(SourceError):
            await self._server.ask(lambda store: self._delete(store, path))

    async def _delete(self, store: Storage, path: str) -> None:
        await self._look(store)
        with suppress(NoSuchFile):
            await store.delete(path)

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

    async def _sweep(self, store: Storage) -> None:
        await self._look(store)
        names = [entry.name async for entries in store.list(self.path) for entry in entries]
        pieces = [f"{self.path}/{name}" for name in set(names).intersection(self._pieces.values())]
        deleted = await asyncio.gather(*(self._delete(store, path) for path in pieces), return_exceptions=True)
        for error in deleted:
            if error is not None:
                raise error
        await self._look(store)
        await store.remove(self.path)
