"""The staging area of a collect job at a server: a directory for the pieces that the server relays."""

import asyncio
from contextlib import suppress
from secrets import token_hex

from coalloc.collect.runtime.server import CollectServer
from coalloc.engine.gridftp.storage import Storage
from coalloc.errors import AlreadyThere, NoSuchFile, NotEmpty, PermissionRefused, SourceError
from coalloc.model import Entry
from coalloc.util.partial_names import MARK

__all__ = ["SWEEPS", "SWEEP_SECONDS", "StagingArea"]

STAGING = f"{MARK}staging-"
"""Beginning of the name of a staging area."""
SWEEPS, SWEEP_SECONDS = 5, 0.3
"""Number of deletions of a file, and seconds between them: a copy that was cancelled may still create the file."""


class StagingArea:
    """A directory at a server for the pieces of one collect job. It is made when the first piece is sent.

    Other users may be able to write to its parent. The names of the directory and of the pieces cannot be predicted, so
    that no user can create them first. Only pieces are deleted, and only if the directory is still the one made here.

    :param folder: parent of the directory
    :param run: name of the collect job, for users
    """

    def __init__(self, server: CollectServer, folder: str, run: str) -> None:
        self._server = server
        self._above = f"{folder.rstrip('/')}/{STAGING}{run}"
        self._key = token_hex(8)
        self._pieces: dict[int, str] = {}
        self._directory: Entry | None = None
        self._made: asyncio.Task[None] | None = None

    @property
    def path(self) -> str:
        """The path of the directory."""
        return f"{self._above}-{self._key}"

    def piece(self, number: int) -> str:
        """Return the path of a piece, available after `make`; the paths of other pieces cannot be inferred from it."""
        return f"{self.path}/{self._pieces.setdefault(number, token_hex(16))}"

    async def make(self) -> None:
        """Make the directory, unless it is made already."""
        if self._made is None or (self._made.done() and (self._made.cancelled() or self._made.exception())):
            self._made = asyncio.create_task(self._server.ask(self._make))
        await asyncio.shield(self._made)

    async def _make(self, store: Storage) -> None:
        try:
            await store.make(self.path)
        except AlreadyThere:  # made by a request whose answer was lost
            self._key = token_hex(8)
            await store.make(self.path)
        self._directory = await store.stat(self.path)

    async def _look(self, store: Storage) -> None:
        """Check that the directory is the one that was made. :raises PermissionRefused: when it was replaced"""
        made, now = self._directory, await store.stat(self.path)
        if made is None or (now.kind, now.link_target, now.unique) != ("dir", None, made.unique):
            raise PermissionRefused(
                f"{self.path} is not the directory that was created there", "find out what replaced it"
            )

    async def delete(self, path: str) -> None:
        """Delete a piece, whether or not it exists."""
        with suppress(SourceError):
            await self._server.ask(lambda store: self._delete(store, path))

    async def _delete(self, store: Storage, path: str) -> None:
        await self._look(store)
        with suppress(NoSuchFile):
            await store.delete(path)

    async def remove(self) -> None:
        """Remove the directory and its pieces.

        :raises SourceError: when that fails
        """
        if self._made is None:
            return
        with suppress(SourceError, asyncio.CancelledError):
            await self._made
        for sweep in range(SWEEPS):
            try:
                await self._server.ask(self._sweep)
                break
            except NoSuchFile:  # it could not be made, or was removed by another user
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
