"""The system calls that store fetched bytes, and the error messages for their failures.

The calls are methods of one class, so that tests can replace it with a failing disk. `in_thread` runs slow calls in a
thread; `rename_exclusively` renames without replacing files.
"""

import asyncio
import errno
import os
import stat
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import ParamSpec, TypeVar

from coalloc.errors import DiskFull, SinkError

__all__ = ["Disk", "disk_error", "in_thread", "rename_exclusively"]

P = ParamSpec("P")
T = TypeVar("T")

_REMEDIES = {
    errno.ENOSPC: "free some space, or choose another disk, and run the same command again to continue",
    errno.EDQUOT: "free some of your quota, or choose another disk, and run the same command again to continue",
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
_PUNCH_HOLE = 2 | 1
"""FALLOC_FL_PUNCH_HOLE and FALLOC_FL_KEEP_SIZE of fallocate(2)."""
_UNKNOWN = (errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP)
_NO_LINKS = (*_UNKNOWN, errno.EPERM, errno.EMLINK)


class Disk:
    """The operating system's calls; all raise OSError. Subclasses in tests make them fail."""

    def pwrite(self, fd: int, data: memoryview, offset: int, /) -> int:
        """Write bytes at `offset`; return how many were written, at least one."""
        return os.pwrite(fd, data, offset)

    def preadv(self, fd: int, buffers: list[memoryview], offset: int, /) -> int:
        """Read bytes at `offset` into the buffers; return how many were read, 0 at the end of the file."""
        return os.preadv(fd, buffers, offset)

    def truncate(self, fd: int, size: int, /) -> None:
        """Set the size of the file; added bytes are a hole."""
        os.ftruncate(fd, size)

    def punch(self, fd: int, offset: int, length: int, /) -> None:
        """Make these bytes a hole, which reads as zeros. Some file systems do not support this call (EOPNOTSUPP)."""
        import ctypes  # needed only by resumed or repaired transfers with long runs of zeros

        library = ctypes.CDLL(None, use_errno=True)
        allocate = getattr(library, "fallocate64", None) or getattr(library, "fallocate", None)
        if allocate is None:  # old C library
            raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
        if allocate(fd, _PUNCH_HOLE, ctypes.c_int64(offset), ctypes.c_int64(length)):
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))

    def start_writing(self, fd: int, offset: int, length: int, /) -> None:
        """Start writing these bytes to the medium, without waiting for the end."""
        # Despite the flag's name, the kernel writes bytes that are not on the medium yet instead of dropping them.
        os.posix_fadvise(fd, offset, length, os.POSIX_FADV_DONTNEED)

    def sync(self, fd: int, /) -> None:
        """Wait until the file's bytes are on the medium."""
        os.fdatasync(fd)

    def rename(self, name: str, directory: int, to: str, into: int, /) -> None:
        """Rename a file into another directory; an existing file is replaced."""
        os.rename(name, to, src_dir_fd=directory, dst_dir_fd=into)

    def rename_new(self, name: str, directory: int, to: str, into: int, /) -> None:
        """Rename a file; fail with EEXIST if the name is taken. Some file systems do not support this call (EINVAL)."""
        import ctypes  # needed only by transfers that must not replace files

        rename = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
        if rename is None:  # old C library
            raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
        if rename(directory, os.fsencode(name), into, os.fsencode(to), _NOREPLACE):
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))

    def link(self, name: str, directory: int, to: str, into: int, /) -> None:
        """Give a file a second name; fail with EEXIST if the name is taken."""
        os.link(name, to, src_dir_fd=directory, dst_dir_fd=into, follow_symlinks=False)

    def free(self, directory: Path | int) -> int | None:
        """Return the free bytes in `directory` for this user; None if the file system does not report them."""
        found = os.statvfs(directory)
        return found.f_bavail * found.f_frsize if found.f_blocks else None


def disk_error(error: OSError, what: str, path: Path) -> SinkError:
    """Return the SinkError for an OSError: "cannot `what` `path`: reason", with the remedy."""
    reason = os.strerror(error.errno) if error.errno else str(error)
    remedy = _REMEDIES.get(error.errno or 0, "choose another place")
    kind = DiskFull if error.errno in (errno.ENOSPC, errno.EDQUOT) else SinkError
    return kind(f"cannot {what} {path}: {reason}", remedy)


async def in_thread(job: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run a job in a thread, and return its result.

    When cancelled, wait until the job ends, as it uses the file; if it fails then, raise its error instead.
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


def rename_exclusively(old: str, origin: int, new: str, aim: int, disk: Disk | None = None) -> None:
    """Rename a file or directory from one open directory into another, without replacing anything.

    This uses the first method that the file system supports:

    1. renameat2(2) with RENAME_NOREPLACE: ext4, XFS, Btrfs, tmpfs and others
    2. link(2), then unlink(2) of the old name: files on NFS. A crash in between leaves both names.
    3. Creation of an empty file or directory under the new name, which the rename replaces: directories on NFS, and
       file systems without both calls, such as some on FUSE. Other programs may see the empty one for an instant. If
       two programs want the same name, only one of them gets it.

    :raises FileExistsError: if the name is taken, even by a dangling symbolic link
    :raises OSError: if the system refuses
    """
    disk = disk or Disk()
    try:
        return disk.rename_new(old, origin, new, aim)
    except OSError as error:
        if error.errno not in _UNKNOWN:
            raise
    if stat.S_ISDIR(os.stat(old, dir_fd=origin, follow_symlinks=False).st_mode):
        os.mkdir(new, dir_fd=aim)
        try:
            disk.rename(old, origin, new, aim)  # fails if the new directory is no longer empty
        except BaseException:
            with suppress(OSError):
                os.rmdir(new, dir_fd=aim)
            raise
        return None
    try:
        disk.link(old, origin, new, aim)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        os.close(os.open(new, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600, dir_fd=aim))
        try:
            disk.rename(old, origin, new, aim)
        except BaseException:
            with suppress(OSError):
                os.unlink(new, dir_fd=aim)
            raise
    else:
        os.unlink(old, dir_fd=origin)
