"""A target that is there already: is it the file that is wanted?"""

import os
import stat
from pathlib import Path

from coalloc.checksums import hasher
from coalloc.disk import disk_error
from coalloc.model import Checksum
from coalloc.sink.data import BLOCK

__all__ = ["has", "resembles"]


def resembles(target: Path, size: int | None) -> bool:
    """Whether `target` is a file, and of `size` bytes if that is known.

    :raises SinkError: if that cannot be told
    """
    try:
        return target.is_file() and size in (None, target.stat().st_size)
    except OSError as error:
        raise disk_error(error, "read", target) from None


def has(target: Path, wanted: Checksum, size: int | None) -> bool:
    """Whether `target` is a file with this checksum, and of `size` bytes if that is known. Reads it.

    :raises SinkError: if it is there and cannot be read
    """
    if not resembles(target, size):
        return False
    try:
        found, block = hasher(wanted.algorithm), memoryview(bytearray(BLOCK))
        with open(target, "rb", buffering=0, opener=_open) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):  # exchanged in between
                return False
            while count := file.readinto(block):
                found.update(block[:count])
    except OSError as error:
        raise disk_error(error, "read", target) from None
    return found.hexdigest() == wanted.value


def _open(path: str, flags: int) -> int:
    """Open a file without waiting for the other end of a FIFO."""
    return os.open(path, flags | os.O_NONBLOCK)
