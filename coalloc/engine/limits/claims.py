"""Files in one user's directory, each locked (flock) by the process that made it, so that others see whether it lives.

A process removes its files when it releases them; files of killed processes are found unlocked and removed. No other
user can open such a file (mode 0600), and thus lock it.
"""

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

__all__ = ["Claim", "Claims"]

_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class Claim(NamedTuple):
    """A file that this process has locked."""

    claims: "Claims"
    name: str
    fd: int

    def release(self) -> None:
        """Remove the file and unlock it; call this only once."""
        with suppress(OSError), self.claims.opened() as directory:
            os.unlink(self.name, dir_fd=directory)
        os.close(self.fd)


class Claims(NamedTuple):
    """The directory of a user's files, at `path`, which is made if it does not exist.

    :param mode: mode of the directory: 0700, or 0755 if other users have to see the file names
    """

    path: Path
    mode: int = 0o700

    @contextmanager
    def opened(self) -> Iterator[int]:
        """Open the directory, and yield its file descriptor.

        :raises OSError: when the directory cannot be used, or another user owns it or can write to it
        """
        with suppress(FileExistsError):
            self.path.mkdir(self.mode)
        directory = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            found = os.fstat(directory)
            if found.st_uid != os.geteuid() or found.st_mode & 0o022:
                raise PermissionError(f"{self.path} belongs to another user, or others can write to it")
            if found.st_mode & self.mode != self.mode:  # the umask removed some bits
                os.fchmod(directory, self.mode)
            yield directory
        finally:
            os.close(directory)

    def add(self, prefix: str) -> Claim:
        """Create and lock a file named by `prefix`, the time and this process."""
        with self.opened() as directory:
            while True:
                name = f"{prefix}{time.monotonic_ns():020}-{os.getpid()}"
                with suppress(FileExistsError):
                    fd = os.open(name, _FILE | os.O_CREAT | os.O_EXCL, 0o600, dir_fd=directory)
                    if _locked(directory, name, fd):
                        return Claim(self, name, fd)

    def count(self, prefix: str) -> int:
        """Return the number of files with this prefix that living processes have locked."""
        with self.opened() as directory:
            return sum(_is_held(directory, name) for name in _names(directory, prefix))

    def ahead(self, prefix: str, before: str | None = None) -> int:
        """Count the files with this prefix older than `before` (all if None), from the oldest locked one on."""
        with self.opened() as directory:
            line = [name for name in _names(directory, prefix) if before is None or name < before]
            for i, name in enumerate(line):
                if _is_held(directory, name):
                    return len(line) - i
        return 0


def _names(directory: int, prefix: str) -> list[str]:
    with os.scandir(directory) as entries:
        return sorted(entry.name for entry in entries if entry.name.startswith(prefix))


def _locked(directory: int, name: str, fd: int) -> bool:
    """Lock a new file. Return False if another process locked it first, to test it, and removes it."""
    try:
        os.fchmod(fd, 0o600)  # the umask may have removed some bits
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.fstat(fd).st_nlink:
            return True
    except BlockingIOError:
        pass
    except OSError:
        os.close(fd)
        os.unlink(name, dir_fd=directory)
        raise
    os.close(fd)
    return False


def _is_held(directory: int, name: str) -> bool:
    """Return whether a living process has this file locked; otherwise remove it."""
    try:
        fd = os.open(name, _FILE, dir_fd=directory)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        with suppress(FileNotFoundError):
            os.unlink(name, dir_fd=directory)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False
