"""This machine as the destination: each file is kept in a partial file beside its target, with a journal.

A file is opened just before its first byte arrives, and closed when it is renamed, so that a job can have thousands of
files.
"""

import asyncio
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from coalloc.collect.runtime.destination import Destination
from coalloc.collect.runtime.item import CollectItem
from coalloc.collect.runtime.partial_name_records import PartialNames
from coalloc.collect.values import HERE
from coalloc.errors import TargetExists
from coalloc.history.fetched import FetchedFiles, FetchedGroup
from coalloc.model.checksums import Checksum, PieceHashes
from coalloc.model.replicas import Stat
from coalloc.partial_file import (
    HeldHere,
    Journal,
    PartialFile,
    clear_left,
    describe,
    matching_bytes,
    recall,
    resembles,
    staged,
)
from coalloc.resolve import bounds, refuse_collisions, target
from coalloc.util.disk import in_thread
from coalloc.util.intervals import Intervals
from coalloc.util.partial_names import derived

__all__ = ["LocalDestination"]

FLUSH_SECONDS = 2.0
"""Maximum seconds for which records of published files wait to be stored, as the process may be killed."""


class _Open:
    """A file that is being written."""

    def __init__(self, item: CollectItem, path: Path, within: Path | None, beside: str | None) -> None:
        """Open the partial file.

        :raises TargetInUse: if another process fetches this file
        :raises SinkError: if the file cannot be written
        """
        self.partial = PartialFile(path, within=within, beside=beside)
        try:
            self._begin(item)
        except BaseException:
            self.partial.close()
            raise

    def _begin(self, item: CollectItem) -> None:
        self.sources = {label: number for number, label in enumerate(item.paths)}
        """Index of each server's origin in the journal."""
        self.relay = len(item.paths)
        """Index of the origin for bytes that relays staged, whichever server they come from."""
        urls = [*item.urls, staged(item.urls[0])]
        of_all = str(dict(item.versions)) if len(item.versions) == len(item.paths) else None
        versions = [*(item.versions.get(label) for label in item.paths), of_all]
        stats = {number: Stat(item.size, version) for number, version in enumerate(versions)}
        header = describe(item.size, urls, stats, [item.expected] if item.expected else [])
        decided = item.expected or item.pieces
        earlier = recall(self.partial.journal_path, header, self.partial.directory)
        origins = earlier.header.origins
        now = {(origin.url, origin.validator) for origin in header.origins if origin.validator}
        known = [
            extent
            for extent in earlier.extents
            if decided or (origins[extent.source].url, origins[extent.source].validator) in now
        ]
        reused = self.partial.begin(item.size, known, [item.expected.algorithm] if item.expected else [])
        self.journal = Journal.create(self.partial.journal_path, earlier.header, reused, own=self.partial.directory)
        self.reused = Intervals((extent.start, extent.end) for extent in reused)
        """Ranges that earlier runs stored."""
        self.relayed = any(origins[extent.source].url == urls[-1] for extent in reused)
        """Whether some of the bytes stored by earlier runs were staged at relays."""

    def close(self) -> None:
        self.journal.close()
        self.partial.close()


class LocalDestination(Destination):
    """A directory of this machine.

    :param folder: directory, which is made if it does not exist
    :param names: records of the names of partial files; None to use `NAME.coget/`, as for a single file
    """

    label = HERE
    compares = True

    def __init__(self, folder: Path, overwrite: bool, names: PartialNames | None = None) -> None:
        super().__init__()
        self.overwrite = overwrite
        self._names = names
        self._fetched = FetchedGroup(FetchedFiles.open())
        self._recording = asyncio.Lock()
        self._flushing: asyncio.Task[None] | None = None
        self._number: bytes | None = None
        self._folder = folder
        self._open: dict[str, _Open] = {}
        self._opening = asyncio.Lock()

    async def prepare(self, names: Sequence[str]) -> None:
        await refuse_collisions(names, HeldHere(self._folder), partial=self._names is None)
        if self._names:
            self._number = await in_thread(self._names.number, self._folder, names)

    def place(self, item: CollectItem) -> str:
        return str(self._folder / item.name)

    def sink(self, item: CollectItem) -> str:
        return item.name

    @property
    def _bounds(self) -> Path | None:
        return bounds(self._folder, many=True)

    def _target(self, item: CollectItem) -> Path:
        return target(item.name, self._folder, many=True, foreign=item.foreign)

    async def resembles(self, item: CollectItem) -> bool:
        return await in_thread(resembles, self._target(item), item.size, self._bounds)

    async def exists(self, item: CollectItem) -> bool:
        return await in_thread(os.path.lexists, self._target(item))

    async def has(self, item: CollectItem, wanted: Checksum | PieceHashes) -> bool:
        return await in_thread(matching_bytes, self._target(item), wanted, item.size, self._bounds) is not None

    async def fetched_before(self, item: CollectItem) -> bool:
        return await in_thread(self._fetched.files.is_whole, self._target(item), _versions(item))

    async def clear(self, item: CollectItem) -> str | None:
        beside = self._beside(item)
        if beside is None or not await in_thread(clear_left, self._target(item), self._bounds, beside):
            return None
        return str(self._target(item).with_name(beside))

    def _beside(self, item: CollectItem) -> str | None:
        return derived(self._number, item.name) if self._number else None

    async def begin(self, item: CollectItem) -> None:
        async with self._opening:
            if item.name not in self._open:
                await in_thread(self._begin, item)

    def _begin(self, item: CollectItem) -> None:
        opened = _Open(item, self._target(item), self._bounds, self._beside(item))
        self._open[item.name] = opened
        self.found_bytes += opened.reused.total
        if opened.relayed:
            self.relayed.add(item.name)

    def is_open(self, name: str) -> bool:
        """Return whether a file was begun, and is not published yet."""
        return name in self._open

    def missing(self, name: str, start: int, end: int) -> list[tuple[int, int]]:
        """Return the ranges of [start, end) that are missing."""
        return Intervals(self._open[name].partial.missing()).within(start, end)

    def held(self, name: str, start: int, end: int) -> list[tuple[int, int]]:
        """Return the ranges of [start, end) that earlier runs stored."""
        return self._open[name].reused.within(start, end)

    def write(self, name: str, sender: str, offset: int, view: memoryview) -> None:
        """Store these bytes.

        :param sender: label of the server that they came from: a relay, or one that holds the file
        :raises SinkError: when the disk fails
        """
        file = self._open[name]
        source = file.relay if name in self.relayed else file.sources[sender]
        file.journal.append(file.partial.write(source, offset, view))

    async def digest(self, item: CollectItem, algorithm: str, start: int, end: int) -> str | None:
        return await in_thread(self._open[item.name].partial.digest, algorithm, start, end)

    def revoke(self, item: CollectItem, start: int, end: int) -> None:
        file = self._open[item.name]
        file.journal.revoke(start, end)
        file.partial.revoke(start, end)
        file.reused.remove(start, end)

    async def publish(self, item: CollectItem) -> bool:
        self._open[item.name].journal.close()
        replaces, written = await in_thread(self._publish, item)
        del self._open[item.name]
        async with self._recording:
            await in_thread(self._fetched.add, self._target(item), written, _versions(item))
        if self._flushing is None or self._flushing.done():
            self._flushing = asyncio.create_task(self._flush_later())
        return replaces

    def _publish(self, item: CollectItem) -> tuple[bool, os.stat_result]:
        """Give a file its name; return False if an existing file has the same content, and the state of the file.

        :raises TargetExists: if the existing file must not be replaced, and has other content
        """
        file, target = self._open[item.name], self._target(item)
        try:
            return True, file.partial.publish(replace=self.overwrite or not item.foreign)
        except TargetExists:
            with suppress(FileNotFoundError):
                existing = os.lstat(target)  # before it is compared
                fetched = Checksum("sha256", file.partial.digest("sha256"))
                if matching_bytes(target, fetched, item.size, self._bounds) is not None:
                    file.partial.revoke(0, item.size)  # so that no partial data are kept
                    file.close()
                    return False, existing
            raise

    async def _flush_later(self) -> None:
        """Store the records of published files soon, also if no other file is published for long."""
        await asyncio.sleep(FLUSH_SECONDS)
        async with self._recording:
            await in_thread(self._fetched.flush)

    async def close(self) -> None:
        if self._flushing:
            self._flushing.cancel()
            await asyncio.wait({self._flushing})
        while self._open:
            self._open.popitem()[1].close()
        await in_thread(self._fetched.flush)


def _versions(item: CollectItem) -> Mapping[str, Stat]:
    """Return the version of the file by its URL; none if it has several, as their bytes may be mixed."""
    if len(item.paths) > 1:
        return {}
    return {url: Stat(item.size, item.versions.get(label)) for label, url in zip(item.paths, item.urls, strict=True)}
