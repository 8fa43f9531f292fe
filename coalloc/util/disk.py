"""The system calls that store fetched bytes, and the meaning of their failures for users.

They are gathered in one class so that a test can replace it with a failing disk. `coalloc.partial_file` decides which
bytes to write where. Slow calls run in a thread, by `in_thread`.
"""

import asyncio
import errno
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import ParamSpec, TypeVar

from coalloc.errors import DiskFull, SinkError

__all__ = ["Disk", "disk_error", "in_thread"]

P = ParamSpec("P")
T = TypeVar("T")

_REMEDIES = {
    errno.ENOSPC: "free some space, or choose another disk, and run the same command again to go on",
    errno.EDQUOT: "free some of your quota, or choose another disk, and run the same command again to go on",
    errno.EFBIG: "choose a file system that allows files of this size, or raise the limit (ulimit -f)",
    errno.EROFS: "choose a directory that can be written to",
    errno.EACCES: "choose a directory that you may write to",
    errno.EPERM: "choose a directory that you may write to",
    errno.ENOENT: "create the directory first, or choose another one",
    errno.ENOTDIR: "choose a directory that exists",
    errno.ENAMETOOLONG: "choose a shorter name",
    errno.EISDIR: "remove or rename the directory, or choose another name",
    errno.ELOOP: "remove the symbolic link, or choose another name",
    errno.EIO: "the disk may be failing: see the system's log, and choose another disk",
}


_NOREPLACE = 1
"""RENAME_NOREPLACE of renameat2(2)."""


class Disk:
    """The operating system's own calls. A subclass may fail them, as they do: with OSError."""

    def pwrite(self, fd: int, data: memoryview, offset: int, /) -> int:
        """Write bytes at `offset`; returns how many were written, at least one."""
        return os.pwrite(fd, data, offset)

    def preadv(self, fd: int, buffers: list[memoryview], offset: int, /) -> int:
        """Read bytes at `offset` into the buffers; returns how many were read, 0 at the end of the file."""
        return os.preadv(fd, buffers, offset)

    def truncate(self, fd: int, size: int, /) -> None:
        """Set the size of the file; a part added is a hole."""
        os.ftruncate(fd, size)

    def start_writing(self, fd: int, offset: int, length: int, /) -> None:
        """Start writing these bytes to the medium; return before that is done."""
        # The kernel does not drop bytes that are still to be written, as the flag's name suggests, but writes them.
        os.posix_fadvise(fd, offset, length, os.POSIX_FADV_DONTNEED)

    def sync(self, fd: int, /) -> None:
        """Wait until the bytes of the file are on the medium."""
        os.fdatasync(fd)

    def rename(self, name: str, directory: int, to: str, into: int, /) -> None:
        """Rename a file into another directory, and replace an existing file."""
        os.rename(name, to, src_dir_fd=directory, dst_dir_fd=into)

    def rename_new(self, name: str, directory: int, to: str, into: int, /) -> None:
        """Rename a file; fail with EEXIST if the name is taken. Some file systems do not support this call (EINVAL)."""
        import ctypes  # for transfers that may replace nothing only

        rename = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
        if rename is None:  # old C library
            raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
        if rename(directory, os.fsencode(name), into, os.fsencode(to), _NOREPLACE):
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))

    def link(self, name: str, directory: int, to: str, into: int, /) -> None:
        """Give a file a second name; fail with EEXIST if the name is taken."""
        os.link(name, to, src_dir_fd=directory, dst_dir_fd=into, follow_symlinks=False)

    def free(self, directory: Path | int) -> int | None:
        """Return the bytes that this user may still write in `directory`; None if the file system does not say."""
        found = os.statvfs(directory)
        return found.f_bavail * found.f_frsize if found.f_blocks else None


def disk_error(error: OSError, what: str, path: Path) -> SinkError:
    """Return the SinkError for an OSError: "cannot `what` `path`: reason", with the remedy."""
    reason = os.strerror(error.errno) if error.errno else str(error)
    remedy = _REMEDIES.get(error.errno or 0, "choose another place")
    kind = DiskFull if error.errno in (errno.ENOSPC, errno.EDQUOT) else SinkError
    return kind(f"cannot {what} {path}: {reason}", remedy)


async def in_thread(job: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run a job that reads or writes the disk in a thread.

    When cancelled, this waits for the end of the job, as it uses the file; an error of the job is then raised instead.
    """
    task = asyncio.ensure_future(asyncio.to_thread(job, *args, **kwargs))
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        while not task.done():
            with suppress(asyncio.CancelledError):
                await asyncio.wait({task})
        task.result()
        raise
