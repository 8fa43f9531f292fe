"""The directory `NAME.coget/` beside a target, and the lock that makes it one process's own.

The lock is flock(2) on the file `lock` in it: the kernel lets go of it when the process ends, however it ends.
The process that has it may remove the directory while another waits with `lock` already open; so, once
locked, the file is looked up again, and if its name now leads elsewhere all is tried anew.

Other users may be able to write where the target is. So the directory is for this user only (0700), it is used only
if it and all in it are own (`coalloc.owned`), and it is reached by descriptors from there on. One that others
could write until now is closed to them first and looked at then.
"""

import errno
import fcntl
import os
import stat
from contextlib import suppress
from pathlib import Path

from coalloc.disk import disk_error
from coalloc.errors import SinkError, TargetInUse
from coalloc.owned import DIRECTORY, OwnDirectory, owner_of_new_files
from coalloc.partial import FETCHED, LOCK, data_folder

__all__ = ["DATA", "JOURNAL", "Folder", "discard", "refuse_outside"]

DATA, JOURNAL = "data", "journal"
NAMES = (DATA, JOURNAL, f"{JOURNAL}.new", f"{JOURNAL}.broken", LOCK)
"""All that coget makes in it. The lock is last, so that it is removed last."""
NO_LOCKS = (errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP, errno.EINVAL)
"""What file systems say that lock no files, as Lustre and NFS do where they were mounted so."""
OPEN_ON_NFS = ".nfs"
"""How names begin that NFS gives to files that were removed while a process has them open."""


def discard(target: Path, within: Path | None = None, beside: str | None = None) -> bool:
    """Delete what was fetched of a file, also while a process is at it, which cannot publish it then.

    A file of the target's name is left alone.

    :param within: as of `Folder`
    :param beside: as of `Folder`
    :returns: whether nothing is left; NFS keeps files that are open
    :raises SinkError: when another user made some of it, or the system refuses
    """
    path = target.parent / beside if beside else _beside(target)
    if not path.is_dir() or path.is_symlink():
        return True
    try:
        outside = os.open(target.parent, os.O_PATH | DIRECTORY)
    except OSError as error:
        raise disk_error(error, "delete", path) from None
    try:
        refuse_outside(target, within, outside)
        _empty(path, outside)
        os.rmdir(path.name, dir_fd=outside)
    except FileNotFoundError:
        return True
    except OSError as error:
        if error.errno in (errno.ENOTEMPTY, errno.EEXIST):
            return False
        raise disk_error(error, "delete", path) from None
    finally:
        os.close(outside)
    return True


def _empty(path: Path, outside: int) -> None:
    """Delete what is in a directory, unless there is anything in it that coget did not make."""
    owner = owner_of_new_files(outside)
    own = OwnDirectory(path, _opened(path, outside, owner), owner)
    try:
        for name in own.names():
            with suppress(FileNotFoundError):  # removed by who is at it
                found = own.stat(name)
                if name not in NAMES and not name.startswith(OPEN_ON_NFS):
                    raise SinkError(f"{path} has {name!r} in it, which coget did not make", "look at it, and remove it")
                if found.st_uid != owner:
                    own.refuse_foreign(name, found)
        for name in NAMES:
            with suppress(FileNotFoundError):
                own.unlink(name)
    finally:
        own.close()


class Folder:
    """The locked directory of one target; `path` is the directory."""

    def __init__(self, target: Path, within: Path | None = None, beside: str | None = None) -> None:
        """Make the directory if it is not there, and lock it.

        :param within: the real path of a directory that the target must not leave by a symbolic link
        :param beside: the name of the directory; None for the usual one
        :raises TargetInUse: if another process has the lock
        :raises SinkError: if the target cannot be written, or what is there is not own
        """
        self.path = target.parent / beside if beside else _beside(target)
        self.name = target.name
        self._target, self._within = target, within
        self._lock: int | None = None
        self._own: OwnDirectory | None = None
        try:
            self.outside = os.open(target.parent, os.O_PATH | DIRECTORY)
        except OSError as error:
            raise disk_error(error, "create", self.path) from None
        try:
            refuse_outside(target, within, self.outside)
            _refuse_special(target, self.outside)
            self._owner = owner_of_new_files(self.outside)
            while self._lock is None:
                self._lock = self._try_lock()
            self._end_publication()
        except BlockingIOError:
            self.unlock()
            raise TargetInUse(
                f"another coget is fetching {target}", "wait until it is done, or choose another name"
            ) from None
        except OSError as error:
            self.unlock()
            raise disk_error(error, "create", self.path) from None
        except BaseException:
            self.unlock()
            raise

    @property
    def own(self) -> OwnDirectory:
        """What is in it."""
        if self._own is None:
            raise RuntimeError(f"{self.path} is used after close")
        return self._own

    def refuse_moved(self) -> None:
        """:raises SinkError: when the target's directory is not the one any more in which the bytes were kept"""
        refuse_outside(self._target, self._within, self.outside)
        try:
            now = self._target.parent.stat()
        except FileNotFoundError:
            now = None
        if now is None or not os.path.samestat(now, os.fstat(self.outside)):
            raise SinkError(
                f"{self._target.parent} was moved or replaced while the file was fetched", "run the same command again"
            )

    @property
    def has_data(self) -> bool:
        """Whether any data are in it; not once it is unlocked."""
        with suppress(OSError):
            return self._own is not None and self._own.stat(DATA).st_size > 0
        return False

    def _try_lock(self) -> int | None:
        """A descriptor that holds the lock, or None when the directory was removed meanwhile."""
        with suppress(FileExistsError):
            os.mkdir(self.path.name, 0o700, dir_fd=self.outside)
        try:
            opened = _opened(self.path, self.outside, self._owner)
        except FileNotFoundError:
            return None
        self._close_own()
        self._own = OwnDirectory(self.path, opened, self._owner)
        self._refuse_foreign()
        try:
            fd = _open_lock(self._own)
        except FileNotFoundError:
            return None
        except OSError as error:  # a link, for instance
            raise disk_error(error, "lock", self.path / LOCK) from None
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(os.fstat(fd), self._own.stat(LOCK)):
                return fd
        except FileNotFoundError:
            pass
        except OSError as error:
            os.close(fd)
            if error.errno not in NO_LOCKS:
                raise
            self._discard_empty()
            raise SinkError(
                f"{self.path} cannot be locked: {error.strerror}",
                "mount the file system with locks (-o flock on Lustre), or fetch to another one and move the file",
            ) from None
        os.close(fd)
        return None

    def _discard_empty(self) -> None:
        """Remove what was made to be locked, if there is nothing else."""
        if set(self.own.names()) == {LOCK}:
            self.own.unlink(LOCK)
            with suppress(OSError):
                os.rmdir(self.path.name, dir_fd=self.outside)

    def _refuse_foreign(self) -> None:
        """Raise a SinkError that names what is in the directory and is not own, before anything in it is changed."""
        names = [name for name in sorted(self.own.names()) if not name.startswith(OPEN_ON_NFS)]
        if names and LOCK not in names and self.own.names():  # it is made first, and removed last
            raise SinkError(
                f"{self.path} is in the way: partial data would go there, and it has {names[0]!r} in it, "
                "which coget did not make",
                "remove or rename it, or choose another name",
            )
        for name in names:
            try:
                found = self.own.stat(name)
            except FileNotFoundError:  # another process of this user has it, and it will be seen by its lock
                continue
            if name not in NAMES:
                raise SinkError(
                    f"{self.path} is in the way: partial data would go there, and it has {name!r} in it, "
                    "which coget did not make",
                    "remove or rename it, or choose another name",
                )
            own_link = stat.S_ISLNK(found.st_mode) and found.st_uid == self._owner  # is refused when it is opened
            if not (own_link or (name == DATA and self._is_target(found))):
                self.own.refuse_foreign(name, found)

    def _is_target(self, found: os.stat_result) -> bool:
        with suppress(OSError):
            return os.path.samestat(found, os.stat(self.name, dir_fd=self.outside, follow_symlinks=False))
        return False

    def _end_publication(self) -> None:
        """Remove the data's old name where a crash left it with both."""
        with suppress(FileNotFoundError):
            if self._is_target(self.own.stat(DATA)):
                for name in (JOURNAL, DATA):
                    with suppress(FileNotFoundError):
                        self.own.unlink(name)

    def remove(self) -> None:
        """While locked, remove the directory and all in it, and let go of the lock. What coget did not make stays.

        The lock file goes last, and is closed before the directory goes (NFS keeps open files in it). A process that
        opens a new lock file from then on has the directory for its own: it is not empty, and so it stays.
        """
        if self._lock is None:
            return
        with suppress(OSError):
            for name in NAMES:
                with suppress(FileNotFoundError):
                    self.own.unlink(name)
        os.close(self._lock)
        self._lock = None
        self._close_own()
        with suppress(OSError):
            os.rmdir(self.path.name, dir_fd=self.outside)
        self.unlock()

    def unlock(self) -> None:
        """Let go of the lock. May be called twice."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None
        self._close_own()
        if self.outside >= 0:
            os.close(self.outside)
            self.outside = -1

    def _close_own(self) -> None:
        if self._own is not None:
            self._own.close()
            self._own = None


def _beside(target: Path) -> Path:
    return target.parent / data_folder(target.name)


def _opened(path: Path, outside: int, owner: int) -> int:
    """Open the directory in an open one, if it is own, and close it to all others."""
    flags = DIRECTORY | os.O_NOFOLLOW
    try:
        held = os.open(path.name, os.O_PATH | flags, dir_fd=outside)
    except NotADirectoryError:
        raise SinkError(
            f"{path} is in the way: partial data would go there, and it is no directory",
            "remove or rename it, or choose another name",
        ) from None
    try:
        found = os.fstat(held)
        if found.st_uid != owner:
            raise SinkError(
                f"{path} is in the way: partial data would go there, and it belongs to another user "
                f"(uid {found.st_uid})",
                "choose another name, or a directory that others cannot write",
            )
        if found.st_mode & FETCHED:
            raise SinkError(
                f"{path} is in the way: partial data would go there, and it has files in it that were fetched",
                "rename it, or choose another name",
            )
        _narrow(held, found)
        return os.open(".", os.O_RDONLY | flags, dir_fd=held)
    finally:
        os.close(held)


def _open_lock(own: OwnDirectory) -> int:
    while True:
        with suppress(FileNotFoundError):
            return own.open(LOCK, os.O_RDWR)
        with suppress(FileExistsError):
            return own.create(LOCK, 0o600)


def _narrow(held: int, found: os.stat_result) -> None:
    """Give a directory the mode 0700; setgid stays, as it gives the data their group."""
    if stat.S_IMODE(found.st_mode) & 0o777 == 0o700:
        return
    mode = stat.S_IMODE(found.st_mode) & stat.S_ISGID | 0o700
    try:
        Path(f"/proc/self/fd/{held}").chmod(mode)  # fchmod refuses a descriptor that is open for no more than its path
    except PermissionError:  # file systems without modes: whoever mounted it decided who may do what
        pass
    except FileNotFoundError:
        raise OSError("this takes a /proc") from None


def refuse_outside(target: Path, within: Path | None, outside: int) -> None:
    """Look where the open directory is, not where its path leads: another user may have put a link on it."""
    if within is not None and Path("/proc/self").exists():
        found = Path(f"/proc/self/fd/{outside}").readlink()
        if not found.is_relative_to(within):
            raise SinkError(
                f"{target} would be elsewhere, as a directory on its path is a symbolic link",
                "remove the link, or choose another directory",
            )


def _refuse_special(target: Path, outside: int) -> None:
    """A rename would replace a device, and fail at a directory: say so before anything is fetched."""
    try:
        mode = os.stat(target.name or ".", dir_fd=outside).st_mode
    except FileNotFoundError:
        return
    except OSError as error:
        raise disk_error(error, "write", target) from None
    if stat.S_ISDIR(mode):
        raise SinkError(f"{target} is a directory", "name a file in it")
    if not stat.S_ISREG(mode):
        raise SinkError(f"{target} is not a plain file", "choose another name")
