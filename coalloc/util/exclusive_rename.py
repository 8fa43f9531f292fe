"""Renames that replace nothing, on every file system, by the first of these that it supports.

1. renameat2(2) with RENAME_NOREPLACE: ext4, XFS, Btrfs, tmpfs and others
2. link(2), and the old name is removed afterwards: files on NFS. After a crash in between there are both names.
3. An empty file or directory is made under the new name, and then replaced: directories on NFS, and file systems that
   support neither, as some over FUSE. Other programs see it for an instant. Of two that want the name one gets it.
"""

import errno
import os
import stat
from contextlib import suppress

from coalloc.util.disk import Disk

__all__ = ["rename_exclusively"]

_UNKNOWN = (errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP)
_NO_LINKS = (*_UNKNOWN, errno.EPERM, errno.EMLINK)


def rename_exclusively(old: str, origin: int, new: str, aim: int, disk: Disk | None = None) -> None:
    """Rename a file or directory of one open directory into another, without replacing anything.

    :raises FileExistsError: when the name is taken, even by a link that leads nowhere
    :raises OSError: when the system refuses
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
            disk.rename(old, origin, new, aim)  # a directory that is not empty by then is not replaced
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
