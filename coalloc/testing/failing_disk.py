"""A disk that becomes full, fails, or writes fewer bytes than given, as a test requests; otherwise the real disk."""

import errno
import os
from pathlib import Path

from coalloc.util.disk import Disk

__all__ = ["FailingDisk"]


class FailingDisk(Disk):
    """A disk on which `room` more bytes can be written; the next write fails with `error` (an errno).

    :param most: maximum bytes of one write or read, as on a slow network file system
    """

    def __init__(self, room: int | None = None, error: int = errno.ENOSPC, most: int | None = None) -> None:
        self.room = room
        self.error = error
        self.most = most
        self.syncs = True
        self.reads = True

    def pwrite(self, fd: int, data: memoryview, offset: int, /) -> int:
        """Write as many bytes as fit; fail if none fits."""
        length = len(data) if self.most is None else min(self.most, len(data))
        if self.room is not None:
            length = min(length, self.room)
            if not length:
                raise OSError(self.error, os.strerror(self.error))
        written = os.pwrite(fd, data[:length], offset)
        if self.room is not None:
            self.room -= written
        return written

    def preadv(self, fd: int, buffers: list[memoryview], offset: int, /) -> int:
        """Read into the first buffer, or fail with EIO."""
        if not self.reads:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return os.preadv(fd, [buffers[0][: self.most]], offset)

    def sync(self, fd: int, /) -> None:
        """Succeed, or fail with EIO."""
        if not self.syncs:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        os.fdatasync(fd)

    def free(self, directory: Path | int) -> int | None:
        """Return None (free space unknown), so that a full disk is detected only while writing."""
        return None
