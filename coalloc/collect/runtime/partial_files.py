"""Partial files of a collect job at a server, which the next job recognises and deletes if this one is killed."""

from collections.abc import Collection
from contextlib import suppress
from secrets import token_bytes, token_hex

from coalloc.collect.runtime.server import CollectServer
from coalloc.collect.runtime.staging import proven_name
from coalloc.collect.runtime.staging_records import StagingRecord, StagingRecords
from coalloc.engine.gridftp.storage import Storage
from coalloc.errors import NoSuchFile
from coalloc.util.disk import in_thread
from coalloc.util.partial_names import MARK, beside

__all__ = ["ServerPartialFiles", "clear_partial_files", "is_of_files"]

FILES = f"{MARK}files-"
"""Beginning of the last part of a record's path, below the destination; there is no directory of this name."""
KEY = 32
"""Characters of the key in the name of a partial file."""


class ServerPartialFiles:
    """The names of one job's partial files at a server, which no other user can predict.

    :param folder: the destination
    """

    def __init__(self, server: CollectServer, folder: str, records: StagingRecords) -> None:
        self._records = records
        self._record = StagingRecord(server.label, f"{folder}/{FILES}{token_hex(8)}", token_bytes(16))

    async def record(self) -> None:
        """Store what the next job needs, before the first file is made."""
        await in_thread(self._records.add, self._record)

    def name(self, path: str) -> str:
        """Return a new path for the partial file of `path`."""
        return beside(path, proven_name(self._record.secret, token_hex(8)))

    async def forget(self) -> None:
        """Remove the record, after all partial files have been deleted or renamed."""
        await in_thread(self._records.forget, self._record)


def is_of_files(record: StagingRecord) -> bool:
    """Return whether a record is of partial files, and not of a staging area."""
    return record.path.rpartition("/")[2].startswith(FILES)


async def clear_partial_files(server: CollectServer, record: StagingRecord, names: Collection[str]) -> list[str]:
    """Delete the partial files that a killed job left beside files with these names; return the deleted paths.

    :raises SourceError: when the server cannot be asked
    """
    above = record.path.rpartition("/")[0]
    folders = {f"{above}/{name}".rpartition("/")[0] for name in names}

    async def sweep(store: Storage) -> list[str]:
        return [path for folder in sorted(folders) for path in await _sweep(store, record, folder)]

    return await server.ask(sweep)


async def _sweep(store: Storage, record: StagingRecord, folder: str) -> list[str]:
    found = []
    with suppress(NoSuchFile):
        found = [entry.name async for entries in store.list(folder or "/") for entry in entries if entry.kind == "file"]
    deleted = []
    for name in found:
        key = name.rpartition(MARK)[2]
        if len(key) == KEY and key == proven_name(record.secret, key[: KEY // 2]):
            with suppress(NoSuchFile):
                await store.delete(f"{folder}/{name}")
                deleted.append(f"{folder}/{name}")
    return deleted
