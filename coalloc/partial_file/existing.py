"""Checks whether an existing target is the wanted file."""

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from coalloc.model.checksums import Checksum, PieceHashes
from coalloc.partial_file.folder import refuse_outside
from coalloc.partial_file.owned_directory import DIRECTORY, owner_of_new_files
from coalloc.partial_file.sparse_file import BLOCK
from coalloc.util.checksums import ROLLING, Hasher, hasher
from coalloc.util.disk import disk_error

__all__ = ["is_comparable", "matching_bytes", "resembles"]

NO_FILE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)


def resembles(target: Path, size: int | None, within: Path | None = None) -> bool:
    """Return whether `target` is a plain file, of `size` bytes if `size` is known.

    :param within: as in `PartialFolder`; if given, no link is followed
    :raises SinkError: if the target cannot be inspected
    """
    with _found(target, within) as (_, found):
        return found is not None and size in (None, found.st_size)


def is_comparable(target: Path, checksum: Checksum, within: Path | None = None) -> bool:
    """Return whether this checksum tells the wanted file from all others that may be at `target`.

    Other bytes with the same adler32 or CRC are easily made, so these do not tell it from another user's file.

    :param within: as in `PartialFolder`; if given, no link is followed
    :raises SinkError: if the target cannot be inspected
    """
    with _found(target, within) as (folder, found):
        return found is None or checksum.algorithm not in ROLLING or _is_own(found, folder)


def matching_bytes(
    target: Path, wanted: Checksum | PieceHashes, size: int | None, within: Path | None = None
) -> int | None:
    """Read `target`; return its size if it is a plain file with this checksum (and of `size` bytes, if known).

    Return None otherwise, and for another user's file if the checksum is easily forged, as in `is_comparable`.

    :param within: as in `PartialFolder`; if given, no link is followed
    :raises SinkError: if it exists, but cannot be read
    """
    with _found(target, within) as (folder, there):
        if there is None or size not in (None, there.st_size):
            return None
        flags = os.O_NONBLOCK | (0 if within is None else os.O_NOFOLLOW)  # it may have become a FIFO, which would block
        if isinstance(wanted, Checksum):
            found: Hasher = hasher(wanted.algorithm)
            value = wanted.value
        else:
            found, value = _PieceHasher(wanted), "".join(wanted.values)
        block, total = memoryview(bytearray(BLOCK)), 0
        with open(os.open(target.name, os.O_RDONLY | os.O_CLOEXEC | flags, dir_fd=folder), "rb", buffering=0) as file:
            now = os.fstat(file.fileno())
            if not stat.S_ISREG(now.st_mode) or (wanted.algorithm in ROLLING and not _is_own(now, folder)):
                return None
            while count := file.readinto(block):
                found.update(block[:count])
                total += count
        return total if found.hexdigest() == value and size in (None, total) else None


class _PieceHasher:
    """The hashes of consecutive pieces, one after the other, with the interface of a hashlib object."""

    def __init__(self, hashes: PieceHashes) -> None:
        self._algorithm = hashes.algorithm
        self._length = self._left = hashes.length
        self._piece = hasher(hashes.algorithm)
        self._ended: list[str] = []

    def update(self, data: memoryview, /) -> None:
        while data:
            if not self._left:
                self._ended.append(self._piece.hexdigest())
                self._piece, self._left = hasher(self._algorithm), self._length
            part = data[: self._left]
            self._piece.update(part)
            self._left -= len(part)
            data = data[len(part) :]

    def hexdigest(self) -> str:
        return "".join((*self._ended, self._piece.hexdigest()))


@contextmanager
def _found(target: Path, within: Path | None) -> Iterator[tuple[int, os.stat_result | None]]:
    """Open the directory of a target; yield its descriptor, and the target's status, None if it is not a plain file.

    The directory's real path is checked after it is open, since another user may put a link on the path meanwhile.
    """
    try:
        try:
            folder = os.open(target.parent, os.O_PATH | DIRECTORY)
        except OSError as error:
            if error.errno not in NO_FILE:
                raise
            yield -1, None
            return
        try:
            refuse_outside(target, within, folder)
            yield folder, _file(target.name or ".", folder, follow=within is None)
        finally:
            os.close(folder)
    except OSError as error:
        raise disk_error(error, "read", target) from None


def _is_own(found: os.stat_result, folder: int) -> bool:
    """Return whether this user made a file in this open directory."""
    if found.st_uid == os.geteuid():
        return True
    with suppress(OSError):  # a file system may give all files to one user
        return found.st_uid == owner_of_new_files(folder)
    return False


def _file(name: str, folder: int, follow: bool) -> os.stat_result | None:
    try:
        found = os.stat(name, dir_fd=folder, follow_symlinks=follow)
    except OSError as error:
        if error.errno not in NO_FILE:
            raise
        return None
    return found if stat.S_ISREG(found.st_mode) else None
