"""Destinations of collected files, which get their final names only when they are complete and verified.

`Destination` is the common interface of this machine (`local_destination`) and a server (`ServerDestination`).
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from functools import partial
from typing import ClassVar

from coalloc.collect.runtime.checking import wrong_pieces
from coalloc.collect.runtime.item import CollectItem
from coalloc.collect.runtime.partial_files import ServerPartialFiles
from coalloc.collect.runtime.server import CollectServer
from coalloc.collect.runtime.server_name_equality import held
from coalloc.collect.runtime.staging import SWEEP_SECONDS, SWEEPS
from coalloc.collect.runtime.staging_records import StagingRecords
from coalloc.engine.gridftp.storage import Storage
from coalloc.errors import AlreadyThere, NoSuchFile, SourceError, TargetExists, Unsupported
from coalloc.model.checksums import Checksum, PieceHashes
from coalloc.resolve import refuse_collisions

__all__ = ["Destination", "ServerDestination"]


class Destination(ABC):
    """A destination. Call `begin` for each file, then `publish`; `close` ends the files that are not published.

    Every call may raise a SourceError if the destination is a server, and a SinkError if it is this machine.
    """

    label: str
    """Label of the host."""
    overwrite: bool
    """Whether files whose names the user did not choose may replace others."""
    compares: ClassVar[bool] = False
    """Whether `publish` compares a file with an existing one, whatever checksums servers offer."""

    def __init__(self) -> None:
        self.relayed: set[str] = set()
        """Files with bytes from a relay, in this run or an earlier one; each is added before its bytes arrive."""
        self.found_bytes = 0
        """Bytes of files begun in this run that earlier runs have stored."""

    @abstractmethod
    async def prepare(self, names: Sequence[str]) -> None:
        """Prepare for these files, before any of them is begun. :raises UsageError: if two would have the same path"""

    @abstractmethod
    def place(self, item: CollectItem) -> str:
        """Return the final path of a file, for users."""

    @abstractmethod
    def sink(self, item: CollectItem) -> str:
        """Return the name that channels use for the file while it is written, after `begin`."""

    @abstractmethod
    async def resembles(self, item: CollectItem) -> bool:
        """Return whether a file of this name and size exists already."""

    @abstractmethod
    async def has(self, item: CollectItem, wanted: Checksum | PieceHashes) -> bool:
        """Return whether the existing file has this checksum, or these hashes; False if they are not available."""

    async def fetched_before(self, item: CollectItem) -> bool:
        """Return whether the existing file is known to be one that an earlier job fetched in this version."""
        return False

    async def clear(self, item: CollectItem) -> str | None:
        """Remove what a killed job left beside a file that exists already; return its path, or None."""
        return None

    @abstractmethod
    async def exists(self, item: CollectItem) -> bool:
        """Return whether anything of this name exists."""

    @abstractmethod
    async def begin(self, item: CollectItem) -> None:
        """Prepare the target of a file. Another call does nothing."""

    @abstractmethod
    async def digest(self, item: CollectItem, algorithm: str, start: int, end: int) -> str | None:
        """Return the digest of bytes [start, end) of a file that was begun; None if it is not available."""

    @abstractmethod
    def revoke(self, item: CollectItem, start: int, end: int) -> None:
        """Mark bytes as wrong; they will be sent again."""

    @abstractmethod
    async def publish(self, item: CollectItem) -> bool:
        """Give a file its name; return False if an existing file that must not be replaced has the same content.

        :raises TargetExists: if the file must not replace anything, and the name is taken by now
        """

    @abstractmethod
    async def close(self) -> None:
        """End all files that were begun and not published."""


class ServerDestination(Destination):
    """A directory of a server: files are written under temporary names, and deleted if they are not published.

    A server's rename may replace a file, so the target is checked just before. If the job is killed, a later one
    finds the temporary names in `records`, and deletes these files.

    :param folder: directory, which is made if it does not exist
    """

    def __init__(self, server: CollectServer, folder: str, overwrite: bool, records: StagingRecords) -> None:
        super().__init__()
        self.label = server.label
        self.overwrite = overwrite
        self._server = server
        self._folder = folder.rstrip("/")
        self._partial = ServerPartialFiles(server, self._folder, records)
        self._beside: dict[str, str] = {}
        self._made: set[str] = set()
        self._making = asyncio.Lock()

    def _path(self, item: CollectItem) -> str:
        return f"{self._folder}/{item.name}"

    async def prepare(self, names: Sequence[str]) -> None:
        await refuse_collisions(names, self._held, partial=False, short=False)

    async def _held(self, folder: str, names: Sequence[str]) -> Mapping[str, str]:
        below = f"{self._folder}/{folder}".rstrip("/")
        return await self._server.ask(lambda store: held(store, below, names))

    def place(self, item: CollectItem) -> str:
        return f"{self.label}{self._path(item)}"

    def sink(self, item: CollectItem) -> str:
        return self._beside[item.name]

    async def resembles(self, item: CollectItem) -> bool:
        try:
            entry = await self._server.ask(lambda store: store.stat(self._path(item)))
        except NoSuchFile:
            return False
        return entry.kind == "file" and entry.size == item.size

    async def exists(self, item: CollectItem) -> bool:
        try:
            await self._server.ask(lambda store: store.stat(self._path(item)))
        except NoSuchFile:
            return False
        return True

    async def has(self, item: CollectItem, wanted: Checksum | PieceHashes) -> bool:
        existing = partial(self._server.checksum, self._path(item))
        if isinstance(wanted, PieceHashes):
            return await wrong_pieces(wanted, item.size, existing) == ()
        return await existing(wanted.algorithm, 0, item.size) == wanted.value

    async def begin(self, item: CollectItem) -> None:
        if item.name in self._beside:
            return
        path, hashes = self._path(item), None if item.expected else item.pieces
        if hashes and not await self._server.ask(lambda store: _offers(store, hashes.algorithm)):
            raise Unsupported(
                f"{item.name} has only {hashes.algorithm} hashes of its pieces, which {self.label} cannot compute",
                "collect it to a directory of this machine",
            )
        async with self._making:
            if not self._made:
                await self._partial.record()
            folder = path.rpartition("/")[0]
            if folder not in self._made:
                await self._server.ask(lambda store: _make(store, folder))
                self._made.add(folder)
        self._beside.setdefault(item.name, self._partial.name(path))

    async def digest(self, item: CollectItem, algorithm: str, start: int, end: int) -> str | None:
        return await self._server.checksum(self._beside[item.name], algorithm, start, end)

    def revoke(self, item: CollectItem, start: int, end: int) -> None:
        pass  # the next delivery overwrites them

    async def publish(self, item: CollectItem) -> bool:
        if item.foreign and not self.overwrite and await self.exists(item):
            raise TargetExists(
                f"{self.place(item)} was created by another program meanwhile", "use --overwrite to replace it"
            )
        await self._server.ask(lambda store: store.rename(self._beside[item.name], self._path(item)))
        del self._beside[item.name]
        return True

    async def close(self) -> None:
        deleted = await asyncio.gather(*(self._delete(path) for path in self._beside.values()))
        self._beside.clear()
        if all(deleted):
            await self._partial.forget()

    async def _delete(self, path: str) -> bool:
        """Delete a file, again if a cancelled copy creates it once more; return whether it is known to stay deleted."""
        for sweep in range(SWEEPS):
            try:
                await self._server.ask(lambda store: store.delete(path))
            except NoSuchFile:
                if sweep:
                    return True
            except SourceError:
                return False  # the result is unknown
            await asyncio.sleep(SWEEP_SECONDS)
        return False


async def _offers(store: Storage, algorithm: str) -> bool:
    return store.offers(algorithm)


async def _make(store: Storage, folder: str) -> None:
    """Make a directory and its parents, unless they exist."""
    if not folder or folder == "/~":
        return
    try:
        await store.make(folder)
    except AlreadyThere:
        pass
    except NoSuchFile:
        await _make(store, folder.rpartition("/")[0])
        await store.make(folder)
