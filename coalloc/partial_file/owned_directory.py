"""A directory of this user, kept open: no link in it is followed, and no file of another user is used.

A path is looked up again at each call; a user who can write to a directory on the path could put a link there between
two calls. So the directory is opened once, and its files are accessed by name relative to its descriptor.

A file counts as the user's own if it is regular, has one name, and has the owner that a new file in the directory gets.
This is not always the calling user: NFS gives files made by root to another user.
"""

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from coalloc.errors import SinkError

__all__ = ["DIRECTORY", "OwnDirectory", "owner_of_new_files"]

DIRECTORY = os.O_DIRECTORY | os.O_CLOEXEC
_FILE = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
"""Flags for opening files; without O_NONBLOCK, opening a FIFO would wait for another process."""
_NO_TMPFILE = (errno.EOPNOTSUPP, errno.ENOSYS, errno.EISDIR, errno.EINVAL, errno.ENOENT)


def owner_of_new_files(directory: int) -> int:
    """Return the number of the user who owns new files in this directory.

    :raises OSError: if no file can be made there
    """
    try:
        fd = os.open(".", os.O_TMPFILE | os.O_WRONLY | os.O_CLOEXEC, 0o600, dir_fd=directory)
    except OSError as error:
        if error.errno not in _NO_TMPFILE:
            raise
        return _owner_of_named(directory)
    try:
        return os.fstat(fd).st_uid
    finally:
        os.close(fd)


def _owner_of_named(directory: int) -> int:
    """Return the same as `owner_of_new_files` on a file system where every file needs a name, such as NFS."""
    name = f".coget-{os.urandom(8).hex()}"
    fd = os.open(name, os.O_CREAT | os.O_EXCL | os.O_WRONLY | _FILE, 0o600, dir_fd=directory)
    try:
        return os.fstat(fd).st_uid
    finally:
        os.close(fd)
        with suppress(OSError):
            os.unlink(name, dir_fd=directory)


class OwnDirectory:
    """An open directory, until `close`. Methods raise OSError when the system refuses.

    :param path: path for messages
    :param fd: descriptor of the directory, whose owner was checked
    :param owner: owner of new files in it
    """

    def __init__(self, path: Path, fd: int, owner: int) -> None:
        self.path = path
        self.fd = fd
        self._owner = owner

    @classmethod
    @contextmanager
    def at(cls, path: Path) -> "Iterator[OwnDirectory]":
        """Open the directory at `path`, which must not be a link."""
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | DIRECTORY)
        try:
            yield cls(path, fd, owner_of_new_files(fd))
        finally:
            os.close(fd)

    def open(self, name: str, flags: int) -> int:
        """Open an existing file of this user.

        :raises SinkError: if it belongs to another user, or is not a regular file with one name
        """
        fd = os.open(name, flags | _FILE, dir_fd=self.fd)
        try:
            found = os.fstat(fd)
            if stat.S_ISDIR(found.st_mode):
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
            self.refuse_foreign(name, found)
        except BaseException:
            os.close(fd)
            raise
        return fd

    def create(self, name: str, mode: int) -> int:
        """Create a file for reading and writing.

        :raises FileExistsError: if the name is taken
        """
        return os.open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL | _FILE, mode, dir_fd=self.fd)

    def renew(self, name: str) -> int:
        """Create a file for this user alone, which replaces an existing one. A link is removed, not followed."""
        with suppress(FileNotFoundError):
            self.unlink(name)
        return self.create(name, 0o600)

    def stat(self, name: str) -> os.stat_result:
        """Return the status of a file, or of a link itself."""
        return os.stat(name, dir_fd=self.fd, follow_symlinks=False)

    def unlink(self, name: str) -> None:
        """Remove a file, or a link."""
        os.unlink(name, dir_fd=self.fd)

    def rename(self, old: str, new: str) -> None:
        """Rename a file in this directory."""
        os.rename(old, new, src_dir_fd=self.fd, dst_dir_fd=self.fd)

    def names(self) -> list[str]:
        """Return the names in the directory."""
        with os.scandir(self.fd) as found:
            return [entry.name for entry in found]

    def refuse_foreign(self, name: str, found: os.stat_result) -> None:
        """Refuse a file that is not this user's own.

        :raises SinkError: with the reason, if it is not
        """
        if found.st_uid != self._owner:
            why = f"belongs to another user (uid {found.st_uid})"
        elif not stat.S_ISREG(found.st_mode):
            why = "is not a plain file"
        elif found.st_nlink > 1:
            why = "has a second name (a hard link), through which other users may change it"
        else:
            return
        raise SinkError(f"{self.path / name} {why}", f"remove {self.path}, or choose another name")

    def close(self) -> None:
        """Close the directory. May be called twice."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1
