"""A directory of this machine as a collection. Symbolic links are not followed: no path leaves the directory."""

import asyncio
import errno
import grp
import os
import pwd
import stat
from collections.abc import AsyncGenerator, Callable, Generator, Iterator, Mapping, MutableSequence, Sequence
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import Concatenate, ParamSpec, TypeVar

from broker.services.collections.trees.message_paths import Naming
from coalloc.api import held_in
from coalloc.errors import (
    AlreadyThere,
    NoSpace,
    NoSuchFile,
    NotDirectory,
    NotEmpty,
    PermissionRefused,
    ServerSays,
    SinkError,
    SourceError,
    Unsupported,
)
from coalloc.model.listings import Entry, Kind, Omission
from coalloc.util.disk import rename_exclusively
from coalloc.util.partial_names import FETCHED, looks_partial, mark_fetched

__all__ = ["LocalTree"]

BATCH = 1000
FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
P = ParamSpec("P")
R = TypeVar("R")


class LocalTree:
    """The tree of the directories and files below `base`.

    :param base: directory on this machine
    :param name: name of the collection
    """

    def __init__(self, base: Path, name: str) -> None:
        self._base = base
        self.naming = Naming(name, f"{base}/")

    async def stat(self, path: str) -> Entry:
        """Return the entry at a path."""
        return await _in_thread(self._stat, path)

    async def list(
        self, path: str, omitted: MutableSequence[Omission] | None = None
    ) -> AsyncGenerator[Sequence[Entry], None]:
        """Yield the entries of a directory, in batches."""
        batches = self._batches(path)
        try:
            while batch := await _in_thread(_next, path, batches):
                yield batch
        finally:
            with suppress(ValueError):  # a thread still reads: the directory is closed when it drops the generator
                batches.close()

    async def lineage(self, path: str) -> Sequence[str | None]:
        """Return the ids of a directory and of all directories above it, which are unique on this machine."""
        return await _in_thread(self._lineage, path)

    async def end(self, path: str) -> str | None:
        """Return the path unchanged, since no link is followed."""
        return path

    async def held(self, folder: str, names: Sequence[str]) -> Mapping[str, str]:
        """Map each name to the first of these that the directory treats as equal; create files to find out."""
        return await _in_thread(self._held, folder, names)

    async def make(self, path: str) -> None:
        """Create a directory; its parent must exist."""
        await _in_thread(self._make, path)

    async def rename(self, old: str, new: str) -> None:
        """Atomically move a file or a directory to another path. :raises AlreadyThere: when the new path exists"""
        try:
            await _in_thread(self._rename, old, new)
        except AlreadyThere:
            raise AlreadyThere(f"{new} exists already", "choose another name, or delete it first") from None

    async def replace(self, old: str, new: str) -> None:
        """Move a file or a link to another path; atomically replace a file or link there."""
        await _in_thread(self._replace, old, new)

    async def delete(self, path: str) -> None:
        """Delete a file, or a symbolic link."""
        await _in_thread(self._delete, path)

    async def remove(self, path: str) -> None:
        """Remove an empty directory."""
        await _in_thread(self._remove, path)

    async def touch(self, path: str, modified: float) -> None:
        """Set the modification time of a file, in seconds since the epoch."""
        await _in_thread(self._touch, path, modified)

    async def link(self, target: str, path: str) -> None:
        """Refuse to create a link, since links may leave the directory. :raises PermissionRefused: always"""
        raise PermissionRefused(f"{path}: links cannot be made in directories of workers", "copy their targets instead")

    def at(self, path: str) -> Path:
        """Return the path on this machine, without a check for links on it."""
        return self._base / path.lstrip("/")

    def real(self, path: str) -> Path:
        """Return the path on this machine, with all links above the collection's root resolved."""
        return Path(os.path.realpath(self._base)) / path.strip("/")

    def _batches(self, path: str) -> Generator[Sequence[Entry], None, None]:
        """Yield the entries of a directory, in batches; the directory is open until the generator ends."""
        folder = self._folder(path)
        try:
            with os.scandir(folder) as scan:
                while found := list(islice(scan, BATCH)):
                    if batch := _entries(found, folder):  # an empty one would be the end of the listing
                        yield batch
        finally:
            os.close(folder)

    def _folder(self, path: str) -> int:
        """Open a directory by components, without following links; return its descriptor, which the caller closes."""
        folder = os.open(self._base, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        for part in path.split("/"):
            if part:
                outer = folder
                try:
                    folder = os.open(part, FOLDER, dir_fd=outer)
                finally:
                    os.close(outer)
        return folder

    @contextmanager
    def _parent(self, path: str) -> Iterator[tuple[int, str]]:
        """Yield the descriptor of a path's parent directory, and the name in it; for the root, the root and `.`."""
        parent, _, name = path.rstrip("/").rpartition("/")
        folder = self._folder(parent)
        try:
            yield folder, name or "."
        finally:
            os.close(folder)

    def _stat(self, path: str) -> Entry:
        with self._parent(path) as (folder, name):
            found = _entry(name, os.stat(name, dir_fd=folder, follow_symlinks=False), folder)
        if path.endswith("/") and found.kind != "dir":
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
        return found

    def _held(self, path: str, names: Sequence[str]) -> Mapping[str, str]:
        folder = self._folder(path)
        try:
            return held_in(folder, names)
        finally:
            os.close(folder)

    def _lineage(self, path: str) -> Sequence[str | None]:
        place = self.real(path)
        return [_unique(each.stat()) for each in (place, *place.parents)]

    def _make(self, path: str) -> None:
        with self._parent(path) as (folder, name):
            try:
                os.mkdir(name, 0o777 | FETCHED if looks_partial(name) else 0o777, dir_fd=folder)
            except FileExistsError:
                self._mark(path, folder, name)
                raise

    def _mark(self, path: str, folder: int, name: str) -> None:
        """Mark a user's directory whose name looks like that of partial data, so that it is not treated as such."""
        if not looks_partial(name):
            return
        with suppress(NotADirectoryError):
            marked = os.open(name, FOLDER, dir_fd=folder)
            try:
                mark_fetched(self.at(path), marked)
            except SinkError as error:
                raise PermissionRefused(error.message, error.remedy) from None
            finally:
                os.close(marked)

    def _rename(self, old: str, new: str) -> None:
        with self._parent(old) as (origin, name), self._parent(new) as (aim, called):
            rename_exclusively(name, origin, called, aim)
            self._mark(new, aim, called)

    def _replace(self, old: str, new: str) -> None:
        with self._parent(old) as (origin, name), self._parent(new) as (aim, called):
            os.replace(name, called, src_dir_fd=origin, dst_dir_fd=aim)

    def _delete(self, path: str) -> None:
        with self._parent(path) as (folder, name):
            os.unlink(name, dir_fd=folder)

    def _remove(self, path: str) -> None:
        with self._parent(path) as (folder, name):
            os.rmdir(name, dir_fd=folder)

    def _touch(self, path: str, modified: float) -> None:
        with self._parent(path) as (folder, name):
            os.utime(name, (modified, modified), dir_fd=folder, follow_symlinks=False)


async def _in_thread(do: Callable[Concatenate[str, P], R], path: str, *args: P.args, **more: P.kwargs) -> R:
    """Call a function in a thread, since disks may be slow; an `OSError` becomes a `SourceError`."""
    try:
        return await asyncio.to_thread(do, path, *args, **more)
    except OSError as error:
        raise _refusal(path, error) from None


REFUSALS: dict[int, type[SourceError]] = {
    errno.ENOENT: NoSuchFile,
    errno.ELOOP: NoSuchFile,
    errno.ENOTDIR: NotDirectory,
    errno.EEXIST: AlreadyThere,
    errno.ENOTEMPTY: NotEmpty,
    errno.ENAMETOOLONG: Unsupported,
    errno.EACCES: PermissionRefused,
    errno.EPERM: PermissionRefused,
    errno.EROFS: PermissionRefused,
    errno.EBUSY: PermissionRefused,  # a mount point
    errno.ENOSPC: NoSpace,
    errno.EDQUOT: NoSpace,
}


def _refusal(path: str, error: OSError) -> SourceError:
    """Convert an error of the operating system to a `SourceError`."""
    kind = REFUSALS.get(error.errno or 0, ServerSays)
    return kind(f"{path}: {error.strerror or error}", "list a directory to see its entries; links are not followed")


def _next(_: str, batches: Iterator[Sequence[Entry]]) -> Sequence[Entry]:
    return next(batches, ())


def _entries(found: Sequence[os.DirEntry[str]], folder: int) -> list[Entry]:
    entries = []
    for each in found:
        with suppress(FileNotFoundError):  # deleted since it was listed
            entries.append(_entry(each.name, each.stat(follow_symlinks=False), folder))
    return entries


def _entry(name: str, found: os.stat_result, folder: int) -> Entry:
    kind: Kind = "dir" if stat.S_ISDIR(found.st_mode) else "file" if stat.S_ISREG(found.st_mode) else "other"
    link = None
    if stat.S_ISLNK(found.st_mode):
        kind, link = "link", os.readlink(name, dir_fd=folder)
    return Entry(
        "/" if name == "." else name,
        kind,
        found.st_size,
        int(found.st_mtime),
        f"{stat.S_IMODE(found.st_mode):04o}",
        _called(found.st_uid, lambda number: pwd.getpwuid(number).pw_name),
        _called(found.st_gid, lambda number: grp.getgrgid(number).gr_name),
        link,
        _unique(found),
    )


def _unique(found: os.stat_result) -> str:
    """Return the id of a file in the form of GridFTP servers, which may serve the same directories."""
    return f"{found.st_dev:x}-{found.st_ino:x}"


def _called(number: int, name: Callable[[int], str]) -> str:
    try:
        return name(number)
    except KeyError:  # this machine has no name for it
        return str(number)
