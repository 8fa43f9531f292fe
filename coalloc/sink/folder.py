"""The directory `NAME.coget/` beside a target, and the lock that makes it one process's own.

The lock is flock(2) on the file `lock` in it: the kernel lets go of it when the process ends, however it ends.
Whoever has it may remove the directory while another waits at the door with `lock` already open; so, once
locked, the file is looked up again, and if its name now leads elsewhere the whole is tried anew.
"""

import fcntl
import os
import stat
from contextlib import suppress
from pathlib import Path

from coalloc.disk import disk_error
from coalloc.errors import SinkError, TargetInUse

__all__ = ["Folder", "discard"]


def discard(target: Path) -> None:
    """Delete what was fetched of a file that is not whole; a file of that name is left alone.

    :raises TargetInUse: while another process fetches it
    :raises SinkError: when that cannot be told
    """
    folder = _beside(target)
    if folder.is_dir() and not folder.is_symlink():
        Folder(target).remove()


class Folder:
    """The locked directory of one target; `path` is the directory."""

    def __init__(self, target: Path) -> None:
        """Make the directory if it is not there, and lock it.

        :raises TargetInUse: if another process has the lock
        :raises SinkError: if the target cannot be written
        """
        _refuse_special(target)
        self.path = _beside(target)
        self._lock: int | None = None
        try:
            while self._lock is None:
                self._lock = self._try_lock()
        except BlockingIOError:
            raise TargetInUse(
                f"another coget is fetching {target}", "wait until it is done, or choose another name"
            ) from None
        except OSError as error:
            raise disk_error(error, "create", self.path) from None

    def _try_lock(self) -> int | None:
        """A descriptor that holds the lock, or None when the directory was removed meanwhile."""
        try:
            self.path.mkdir()
        except FileExistsError:
            _refuse_other_than_folder(self.path)
        lock = self.path / "lock"
        try:
            fd = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
        except FileNotFoundError:
            return None
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(os.fstat(fd), lock.stat()):
                return fd
        except FileNotFoundError:
            pass
        except OSError:
            os.close(fd)
            raise
        os.close(fd)
        return None

    def remove(self) -> None:
        """While locked, remove the directory and all in it, and let go of the lock. What cannot be removed stays.

        The lock file goes last, and is closed before the directory goes (NFS keeps open files in it). Who
        opens a new lock file from then on has the directory for its own: it is not empty, and so it stays.
        """
        if self._lock is None:
            return
        with suppress(OSError):
            for path in sorted(self.path.iterdir(), key=lambda path: path.name == "lock"):
                path.unlink()
        self.unlock()
        with suppress(OSError):
            self.path.rmdir()

    def unlock(self) -> None:
        """Let go of the lock. May be called twice."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


def _beside(target: Path) -> Path:
    return target.with_name(target.name + ".coget")


def _refuse_other_than_folder(path: Path) -> None:
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:  # removed meanwhile
        return
    if not (stat.S_ISDIR(mode) or path.is_dir()):
        raise SinkError(
            f"{path} is in the way: partial data would go there, and it is no directory",
            "remove or rename it, or choose another name",
        )


def _refuse_special(target: Path) -> None:
    """A rename would replace a device, and fail at a directory: say so before anything is fetched."""
    try:
        mode = target.stat().st_mode
    except FileNotFoundError:
        return
    except OSError as error:
        raise disk_error(error, "write", target) from None
    if stat.S_ISDIR(mode):
        raise SinkError(f"{target} is a directory", "name a file in it")
    if not stat.S_ISREG(mode):
        raise SinkError(f"{target} is not a plain file", "choose another name")
