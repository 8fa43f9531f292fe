"""The last step of a fetch: the rename of the data to the target, out of the directory of partial data.

Usually, a plain rename replaces an existing file. If no file may be replaced, `rename_exclusively` fails if the name is
taken, even if that happened a moment ago. Where it makes a link, a crash may leave the file with both names, and the
next run removes the old one.
"""

import os
from contextlib import suppress
from pathlib import Path

from coalloc.errors import SinkError, TargetExists
from coalloc.partial_file.folder import DATA, PartialFolder
from coalloc.partial_file.owned_directory import DIRECTORY
from coalloc.partial_file.sparse_file import Data
from coalloc.util.disk import Disk, disk_error, rename_exclusively

__all__ = ["publish"]


def publish(data: Data, folder: PartialFolder, target: Path, disk: Disk, replace: bool) -> os.stat_result:
    """Rename the file to `target`; its bytes reach the disk before its name, and both before this returns.

    :returns: the file's state before the rename

    :raises TargetExists: if the name is taken and `replace` is False
    """
    try:
        found = data.sync()
        if not os.path.samestat(found, folder.own.stat(DATA)):
            raise SinkError(f"{data.path} was replaced by another program", "run the same command again")
        folder.refuse_moved()
        if replace:
            disk.rename(DATA, folder.own.fd, folder.name, folder.outside)
        else:
            _publish_new(found, folder, disk)
        folder.refuse_moved()
    except FileExistsError:
        raise TargetExists(
            f"{target} exists, with other content", "use --overwrite to replace it, or choose another name with -o"
        ) from None
    except OSError as error:
        raise disk_error(error, "write", target) from None
    with suppress(OSError):  # not supported by every file system; the file is complete and has its name already
        _sync_directory(folder.outside)
    return found


def _publish_new(found: os.stat_result, folder: PartialFolder, disk: Disk) -> None:
    try:
        rename_exclusively(DATA, folder.own.fd, folder.name, folder.outside, disk)
    except FileExistsError:
        if not os.path.samestat(found, os.stat(folder.name, dir_fd=folder.outside, follow_symlinks=False)):
            raise  # otherwise an NFS server made the link, but its first answer was lost


def _sync_directory(outside: int) -> None:
    fd = os.open(".", os.O_RDONLY | DIRECTORY, dir_fd=outside)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
