"""The staging area of a collect job at a server: a directory for the pieces that the server relays."""

import asyncio
import hmac
from contextlib import suppress
from secrets import token_bytes, token_hex

from coalloc.collect.runtime.server import CollectServer
from coalloc.collect.runtime.staging_records import StagingRecord, StagingRecords
from coalloc.engine.gridftp.storage import Storage
from coalloc.errors import AlreadyThere, NoSuchFile, NotEmpty, PermissionRefused, SourceError
from coalloc.model.listings import Entry
from coalloc.util.disk import in_thread
from coalloc.util.partial_names import MARK

__all__ = ["SWEEPS", "SWEEP_SECONDS", "DirectoryReplaced", "StagingArea", "clear", "proven_name"]

STAGING = f"{MARK}staging-"
"""Beginning of the name of a staging area."""
SWEEPS, SWEEP_SECONDS = 5, 0.3
"""Number of deletions of a file, and seconds between them: a copy that was cancelled may still create the file."""


class DirectoryReplaced(PermissionRefused):
    """A directory that is not the one that was made with this name."""


class StagingArea:
    """A directory at a server for the pieces of one collect job. It is made when the first piece is sent.

    Other users may be able to write to its parent. The names of the directory and of the pieces cannot be predicted, so
    that no user can create them first. Only pieces are deleted, and only if the directory is still the one made here.
    If the job is killed, a later one finds the directory in `records`, and clears it.

    :param folder: parent of the directory
    :param run: name of the collect job, for users
    """

    def __init__(self, server: CollectServer, folder: str, run: str, records: StagingRecords) -> None:
        self._server = server
        self._records = records
        self._above = f"{folder.rstrip('/')}/{STAGING}{run}"
        self._record = self._new_record()
        self._pieces: dict[int, str] = {}
        self._directory: Entry | None = None
        self._made: asyncio.Task[None] | None = None

    def _new_record(self) -> StagingRecord:
        return StagingRecord(self._server.label, f"{self._above}-{token_hex(8)}", token_bytes(16))

    @property
    def path(self) -> str:
        """The path of the directory."""
        return self._record.path

    def piece(self, number: int) -> str:
        """Return the path of a piece, available after `make`; the paths of other pieces cannot be inferred from it."""
        return f"{self.path}/{self._pieces.setdefault(number, proven_name(self._record.secret, token_hex(8)))}"

    async def make(self) -> None:
        """Make the directory, unless it is made already."""
        if self._made is None or (self._made.done() and (self._made.cancelled() or self._made.exception())):
            self._made = asyncio.create_task(self._server.ask(self._make))
        await asyncio.shield(self._made)

    async def _make(self, store: Storage) -> None:
        await in_thread(self._records.add, self._record)
        try:
            await store.make(self.path)
        except AlreadyThere:  # made by a request whose answer was lost; a later job clears it
            self._record, self._pieces = self._new_record(), {}
            await in_thread(self._records.add, self._record)
            await store.make(self.path)
        self._directory = await store.stat(self.path)
        self._record = self._record._replace(identity=self._directory.unique)
        await in_thread(self._records.identify, self._record)

    async def delete(self, path: str) -> None:
        """Delete a piece, whether or not it exists."""
        with suppress(SourceError):
            await self._server.ask(lambda store: _delete(store, path, self._directory))

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
        await in_thread(self._records.forget, self._record)

    async def _sweep(self, store: Storage) -> None:
        await _empty(store, self._record, self._directory)


async def clear(server: CollectServer, record: StagingRecord) -> bool:
    """Remove a staging area that a killed job left at a server; return False if it is not there any more.

    :raises PermissionRefused: when the directory was replaced
    :raises NotEmpty: when it has files of others, which stay
    :raises SourceError: when the server cannot be asked
    """

    async def sweep(store: Storage) -> None:
        found = await store.stat(record.path)
        # Without an identity, the job was killed before it sent any piece.
        await _empty(store, record, found if record.identity is None else found._replace(unique=record.identity))

    try:
        await server.ask(sweep)
    except NoSuchFile:
        return False
    return True


async def _empty(store: Storage, record: StagingRecord, made: Entry | None) -> None:
    """Remove a directory with the pieces in it."""
    await _check(store, record.path, made)
    names = [entry.name async for entries in store.list(record.path) for entry in entries]
    pieces = [f"{record.path}/{name}" for name in set(names) if name == proven_name(record.secret, name[:16])]
    deleted = await asyncio.gather(*(_delete(store, path, made) for path in pieces), return_exceptions=True)
    for error in deleted:
        if error is not None:
            raise error
    await _check(store, record.path, made)
    await store.remove(record.path)


async def _delete(store: Storage, path: str, made: Entry | None) -> None:
    await _check(store, path.rpartition("/")[0], made)
    with suppress(NoSuchFile):
        await store.delete(path)


async def _check(store: Storage, path: str, made: Entry | None) -> None:
    """Check that a directory is the one that was made. :raises PermissionRefused: when it was replaced"""
    now = await store.stat(path)
    if made is None or (now.kind, now.link_target, now.unique) != ("dir", None, made.unique):
        raise DirectoryReplaced(f"{path} is not the directory that was created there", "find out what replaced it")


def proven_name(secret: bytes, beginning: str) -> str:
    """Return the name of a piece, or the key of a partial file: its second half proves that the secret is known."""
    return beginning + hmac.new(secret, beginning.encode(errors="surrogateescape"), "sha256").hexdigest()[:16]
