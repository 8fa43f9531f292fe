"""Files in a directory of one user, each locked (flock) by the process that made it, so the kernel tells who is alive.

Files are removed when they are let go; those of processes that were killed are found unlocked and removed. No other
user can open one (mode 0600), and so none can lock one.
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
        """Remove the file and let go of it; to be called once."""
        with suppress(OSError), self.claims.opened() as directory:
            os.unlink(self.name, dir_fd=directory)
        os.close(self.fd)


class Claims(NamedTuple):
    """The directory at `path`, which is made if it is not there.

    :param mode: 0700, or 0755 for other users to see the names
    """

    path: Path
    mode: int = 0o700

    @contextmanager
    def opened(self) -> Iterator[int]:
        """Open the directory; take none that another user may have laid there to tamper with.

        :raises OSError: when it cannot be used
        """
        with suppress(FileExistsError):
            self.path.mkdir(self.mode)
        directory = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            found = os.fstat(directory)
            if found.st_uid != os.geteuid() or found.st_mode & 0o022:
                raise PermissionError(f"{self.path} is not ours alone")
            if found.st_mode & self.mode != self.mode:  # whatever the umask says
                os.fchmod(directory, self.mode)
            yield directory
        finally:
            os.close(directory)

    def add(self, prefix: str) -> Claim:
        """Make a file whose name begins so and goes on with the time and this process, and lock it."""
        with self.opened() as directory:
            while True:
                name = f"{prefix}{time.monotonic_ns():020}-{os.getpid()}"
                with suppress(FileExistsError):
                    fd = os.open(name, _FILE | os.O_CREAT | os.O_EXCL, 0o600, dir_fd=directory)
                    if _locked(directory, name, fd):
                        return Claim(self, name, fd)

    def count(self, prefix: str) -> int:
        """How many files whose names begin so are held."""
        with self.opened() as directory:
            return sum(_is_held(directory, name) for name in _names(directory, prefix))

    def ahead(self, prefix: str, before: str | None = None) -> int:
        """How many such files are older than `before`, or are there at all: from the oldest that is held on."""
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
    """Lock a file that was just made. Not if another process was quicker, to see whether it is held: it removes it."""
    try:
        os.fchmod(fd, 0o600)  # whatever the umask says
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
    """Whether a living process has this file locked; otherwise remove it."""
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
