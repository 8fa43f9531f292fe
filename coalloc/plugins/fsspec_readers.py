"""The open files of the file system `coget://` in one event loop, and its listings."""

import asyncio
import os
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary, WeakSet

from coalloc import api
from coalloc.errors import (
    CoallocError,
    NoSuchFile,
    NothingToFetchFrom,
    ReplicaChanged,
    ServerSays,
    SourceError,
    Unsupported,
)
from coalloc.model.listings import Entry
from coalloc.model.progress import Snapshot
from coalloc.model.replicas import DATASET, Stat
from coalloc.plugins.names import child, directory, listed_at, sources
from coalloc.plugins.storage_sessions import StorageSessions

__all__ = ["OpenFile", "Readers"]

MOST_OPEN = 64
"""Most files kept open."""
FRESH = 5.0
"""Seconds for which the size of an open file is not asked again when the file is opened once more."""
MOST_LISTED = 100_000
"""Most entries of one listing of datasets."""
TYPES = {"dir": "directory", "file": "file", "link": "link", "other": "other"}

Range = tuple[int | None, int | None]
Info = dict[str, Any]


class OpenFile:
    """A file that a program has opened, whose bytes must all be of one version.

    :param size: its size when it was opened
    :ivar answers: of the replicas from which it may be read; empty before the first read
    """

    def __init__(self, path: str, size: int) -> None:
        self.path = path
        self.size = size
        self.answers: dict[str, Stat] = {}


class Readers:
    """The open files of one event loop, by path.

    :param roots: URLs below which the paths are; none if a path names its sources itself
    :param broker: address of the broker; None for the user's usual one
    """

    def __init__(self, roots: Sequence[str], broker: str | None) -> None:
        self._roots = roots
        self._broker = broker
        self._time = asyncio.get_running_loop().time
        self._pool = api.ReaderPool()
        self._opening: OrderedDict[str, tuple[float, asyncio.Task[api.RangeReader]]] = OrderedDict()
        self._held: WeakKeyDictionary[OpenFile, asyncio.Task[api.RangeReader]] = WeakKeyDictionary()
        """The task that opened the reader of each open file, which goes on with the replicas that have not changed."""
        self._all: WeakSet[api.RangeReader] = WeakSet()
        self._storages = StorageSessions()

    def _task(self, path: str, age: float = float("inf")) -> "asyncio.Task[api.RangeReader]":
        """Return the task that opens a file, or opened it at most so many seconds ago; several callers share it."""
        opened_at, task = self._opening.get(path, (0.0, None))
        if task is None or (task.done() and self._time() > opened_at + age):
            task = asyncio.create_task(self._open(path))
            self._opening[path] = self._time(), task
            while len(self._opening) > MOST_OPEN:
                self._opening.popitem(last=False)  # its sessions close when it has not been used for a while
        self._opening.move_to_end(path)
        return task

    async def _opened(self, path: str, task: "asyncio.Task[api.RangeReader]") -> api.RangeReader:
        try:
            return await asyncio.shield(task)
        except BaseException:
            if task.done():
                self._forget(path, task)
            raise

    async def _open(self, path: str, known: Mapping[str, Stat] | None = None) -> api.RangeReader:
        reader = await api.open_reader(self._request(path), self._pool, known)
        self._all.add(reader)
        return reader

    def _request(self, path: str) -> api.Request:
        return api.Request(sources(path, self._roots), broker=self._broker)

    def _forget(self, path: str, task: "asyncio.Task[api.RangeReader]") -> None:
        if self._opening.get(path, (0.0, None))[1] is task:
            del self._opening[path]

    async def read(self, path: str, ranges: Sequence[Range]) -> list[bytes]:
        """Return the bytes of each range of a file that is not open. A range may be as in a slice of Python.

        :raises CoallocError: if it cannot be read
        """
        task = self._task(path)
        old = task.done()
        try:
            return await self._read(path, task, ranges)
        except CoallocError as error:
            if error.transient or not old:
                raise
        return await self._read(path, self._task(path), ranges)  # the file may have been replaced since it was opened

    async def _read(self, path: str, task: "asyncio.Task[api.RangeReader]", ranges: Sequence[Range]) -> list[bytes]:
        reader = await self._opened(path, task)
        try:
            return await reader.read_many([_within(each, reader.size) for each in ranges])
        except CoallocError:
            self._forget(path, task)  # a new reader gets the new version, and asks servers that refused this once
            raise

    async def read_open(self, file: OpenFile, start: int, end: int) -> bytes:
        """Return bytes [start, end) of an open file.

        :raises ReplicaChanged: if the file has another size or version by now
        :raises CoallocError: if they cannot be read
        """
        task = self._held.get(file)
        if task is None:
            again = asyncio.create_task(self._open(file.path, file.answers)) if file.answers else None
            task = self._held[file] = again or self._task(file.path)
        try:
            reader = await self._opened(file.path, task)
            if reader.size != file.size:
                raise ReplicaChanged(f"{file.path} was changed while it was open", "open it again")
            (data,) = await self._read(file.path, task, [(start, end)])
        except CoallocError as error:
            changed = isinstance(error, ReplicaChanged) and file.answers
            if self._held.get(file) is task and not changed and (task.exception() or not error.transient):
                del self._held[file]  # another reader asks again; its URLs may be new ones
            raise
        file.answers.update(reader.answers)
        return data

    async def info(self, path: str) -> Info:
        """Return the description of a file or directory.

        :raises CoallocError: if there is none, or no server answers
        """
        if (not path and not self._roots) or await self._is_directory(path):
            return _directory(path)
        try:
            reader = await self._opened(path, self._task(path, FRESH))
        except NothingToFetchFrom as error:
            if not self._is_dataset(path) or error.transient:
                raise
            if await api.search(f"{path}/", 1, self._broker):
                return _directory(path)
            raise NoSuchFile(error.message, error.remedy) from None
        return {
            "name": path,
            "type": "file",
            "size": reader.size,
            "checksums": {each.algorithm: each.value for each in reader.checksums},
            "versions": reader.versions if len(sources(path, self._roots)) == 1 else {},
        }

    async def _is_directory(self, path: str) -> bool:
        """Return whether a path is a directory, as far as its server tells."""
        url = self._listed_at(path)
        if url is None:
            return False
        try:
            async with self._storages.at(url) as storage:
                if storage.describes:
                    return (await storage.stat(directory(url))).kind == "dir"
                return await _listing(storage, directory(url)) is not None
        except SourceError:  # another replica may answer
            return False

    def _listed_at(self, path: str) -> str | None:
        """Return the URL of a directory whose server can list it; None for files that are named by several URLs."""
        urls = sources(path, self._roots)
        return listed_at(urls) if self._roots or len(urls) == 1 else None

    def _is_dataset(self, path: str) -> bool:
        return not self._roots and bool(DATASET.fullmatch(path)) and not os.path.exists(path)  # noqa: PTH110

    async def entries(self, path: str) -> list[Info]:
        """Return the entries of a directory, or the file itself.

        :raises CoallocError: if there is neither, or its server lists nothing
        """
        if not self._roots and (not path or self._is_dataset(path)):
            found = await self._datasets(path)
        elif url := self._listed_at(path):
            found = await self._listed(path, url)
        else:
            found = None
        if found is not None:
            return found
        info = await self.info(path)
        if info["type"] == "file":
            return [info]
        raise Unsupported(f"{path}: its server cannot list directories", "name the files")

    async def _datasets(self, path: str) -> list[Info] | None:
        """Return the datasets, and beginnings of names up to a slash, below a path; None if there are none."""
        below = f"{path}/" if path else ""
        entries = await api.search(below, MOST_LISTED, self._broker)
        if len(entries) == MOST_LISTED:
            raise Unsupported(f"more than {MOST_LISTED} datasets begin with '{below}'", "list a longer path")
        found: dict[str, Info] = {}
        for entry in entries:
            parts = {*entry.name.split("/"), *entry.name.partition(":")[2].split("/")}
            plain = DATASET.fullmatch(entry.name) and not parts & {".", ".."}
            if not (entry.name.startswith(below) and plain) or entry.name.startswith("/"):
                continue  # the broker must not name anything else, such as URLs
            head, slash, _ = entry.name[len(below) :].partition("/")
            name = f"{below}{head}"
            found[name] = _directory(name) if slash else {"name": name, "size": entry.size, "type": "file"}
        return list(found.values()) if found or not path else None

    async def _listed(self, path: str, url: str) -> list[Info] | None:
        """Return the entries of a directory of a server; None if it is not a directory."""
        async with self._storages.at(url) as storage:
            try:
                if storage.describes and (await storage.stat(directory(url))).kind != "dir":
                    return None
                found = await _listing(storage, directory(url))
            except NoSuchFile:
                return None
            return None if found is None else [_entry(path, each, relative=bool(self._roots)) for each in found]

    async def download(self, path: str, target: str, watch: Callable[[Snapshot], None]) -> None:
        """Download a file, verified; a later call continues after a failure.

        :raises CoallocError: as a download
        """
        await api.download(self._request(path)._replace(output=Path(target), overwrite=True, one_file=True), watch)

    async def close(self) -> None:
        """Close all files."""
        tasks = [*self._held.values(), *(task for _, task in self._opening.values())]
        self._opening.clear()
        self._held.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.gather(*(reader.close() for reader in list(self._all)), self._storages.close())


async def _listing(storage: api.Storage, path: str) -> list[Entry] | None:
    """Return the entries of a directory; None if it is none, as far as a server without MLST shows that.

    Such a server lists a file as itself, and nothing for a name that does not exist.
    """
    found = [each async for group in storage.list(path) for each in group]
    if storage.describes:
        return found
    itself = len(found) == 1 and found[0].kind == "file" and found[0].name.rpartition("/")[2] == path.rpartition("/")[2]
    return None if itself or not found else found


def _within(wanted: Range, size: int) -> tuple[int, int]:
    """Return a range as Python's slices take it.

    >>> _within((None, -2), 10), _within((-3, None), 10), _within((4, 99), 10), _within((8, 3), 10)
    ((0, 8), (7, 10), (4, 10), (8, 8))
    """
    start, end, _ = slice(*wanted).indices(size)
    return start, max(start, end)


def _directory(path: str) -> Info:
    return {"name": path, "size": 0, "type": "directory"}


def _entry(path: str, entry: Entry, *, relative: bool) -> Info:
    if "/" in entry.name or entry.name in ("", ".", ".."):
        raise ServerSays(f"the server lists {entry.name!r}, which is no name of a file", "use another server")
    return {
        "name": child(path, entry.name, relative=relative),
        "size": entry.size,
        "type": TYPES[entry.kind],
        "mtime": entry.modified,
    }
