"""The directory `NAME.coget/` beside a target, and the lock that reserves it for one process.

The lock is flock(2) on the file `lock` in it, which the kernel releases when the process ends in any way. The process
that holds it may remove the directory while another process has already opened `lock`. So, once `lock` is locked, it is
looked up again; if the name now refers to another file, all steps are repeated.

Other users may be able to write beside the target. So the directory is private (0700), is used only if it and its files
belong to this user (`owned_directory`), and is accessed by descriptors from then on. If others could write to the
directory, their access is removed before its files are checked.
"""

import errno
import fcntl
import os
import stat
from contextlib import suppress
from pathlib import Path

from coalloc.errors import SinkError, TargetInUse
from coalloc.partial_file.owned_directory import DIRECTORY, OwnDirectory, owner_of_new_files
from coalloc.util.disk import disk_error
from coalloc.util.partial_names import FETCHED, LOCK, data_folder

__all__ = ["DATA", "JOURNAL", "PartialFolder", "clear_left", "discard", "refuse_outside"]

DATA, JOURNAL = "data", "journal"
NAMES = (DATA, JOURNAL, f"{JOURNAL}.new", f"{JOURNAL}.broken", LOCK)
"""All files that coget makes in the directory. The lock is last, so that it is removed last."""
NO_SUCH_NAME = (errno.EINVAL, errno.ENOENT)
"""Errors of a directory that is open, for names that its file system does not have, as those with a colon in exFAT."""
NAME_REMEDY = 'choose a name without characters such as : ? * " < > |, with --output'
NO_LOCKS = (errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP, errno.EINVAL)
"""Errors of file systems that do not lock files, such as Lustre and NFS with certain mount options."""
OPEN_ON_NFS = ".nfs"
"""Prefix that NFS gives to the names of files that were removed while open."""


def discard(target: Path, within: Path | None = None, beside: str | None = None) -> bool:
    """Delete the partial data of a file, even while a process uses it, which then cannot publish the file.

    An existing target is not changed.

    :param within: as in `PartialFolder`
    :param beside: as in `PartialFolder`
    :returns: whether no data are left; NFS keeps files that are open
    :raises SinkError: when some files are another user's, or the system refuses
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


def clear_left(target: Path, within: Path | None, beside: str) -> bool:
    """Remove the directory that a killed process left beside a target that is complete; return whether it did.

    It stays if another process uses it, or if it contains a file that coget did not make.

    :param within: as in `PartialFolder`
    :param beside: as in `PartialFolder`
    """
    path = target.with_name(beside)
    if not path.is_dir() or path.is_symlink():
        return False
    try:
        PartialFolder(target, within, beside).remove()
    except (TargetInUse, SinkError):
        return False
    return not path.exists()


def _empty(path: Path, outside: int) -> None:
    """Delete the contents of a directory, unless it contains a file that coget did not make."""
    owner = owner_of_new_files(outside)
    own = OwnDirectory(path, _opened(path, outside, owner), owner)
    try:
        for name in own.names():
            with suppress(FileNotFoundError):  # removed by the process that uses it
                found = own.stat(name)
                if name not in NAMES and not name.startswith(OPEN_ON_NFS):
                    raise SinkError(f"{path} contains {name!r}, which coget did not make", "check it, and remove it")
                if found.st_uid != owner:
                    own.refuse_foreign(name, found)
        for name in NAMES:
            with suppress(FileNotFoundError):
                own.unlink(name)
    finally:
        own.close()


class PartialFolder:
    """The locked directory of one target; `path` is the directory."""

    def __init__(self, target: Path, within: Path | None = None, beside: str | None = None) -> None:
        """Make the directory if it does not exist, and lock it.

        :param within: the real path of a directory that the target must not leave by a symbolic link
        :param beside: the name of the directory; None for `NAME.coget`
        :raises TargetInUse: if another process has the lock
        :raises SinkError: if the target cannot be written, or the existing directory belongs to another user
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
            if error.errno in NO_SUCH_NAME:
                why = "its file system does not accept this name, or the directory was deleted"
                raise SinkError(f"cannot create {target}: {why}", NAME_REMEDY) from None
            raise disk_error(error, "create", self.path) from None
        except BaseException:
            self.unlock()
            raise

    @property
    def own(self) -> OwnDirectory:
        """The open directory."""
        if self._own is None:
            raise RuntimeError(f"{self.path} is used after close")
        return self._own

    def refuse_moved(self) -> None:
        """Check that the target's directory is still the one that was opened.

        :raises SinkError: if it was moved or replaced
        """
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
        """Return whether the directory contains any fetched data; False once it is unlocked."""
        with suppress(OSError):
            return self._own is not None and self._own.stat(DATA).st_size > 0
        return False

    def _try_lock(self) -> int | None:
        """Return a descriptor that holds the lock, or None when the directory was removed meanwhile."""
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
        except OSError as error:  # such as a symbolic link
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
                f"cannot lock {self.path}: {error.strerror}",
                "mount the file system with locks (-o flock on Lustre), or fetch to another one and move the file",
            ) from None
        os.close(fd)
        return None

    def _discard_empty(self) -> None:
        """Remove the directory and the lock file, if the directory contains no other file."""
        if set(self.own.names()) == {LOCK}:
            self.own.unlink(LOCK)
            with suppress(OSError):
                os.rmdir(self.path.name, dir_fd=self.outside)

    def _refuse_foreign(self) -> None:
        """Refuse a directory with foreign files, before it is changed.

        :raises SinkError: if it contains a file that coget did not make, or that belongs to another user
        """
        names = [name for name in sorted(self.own.names()) if not name.startswith(OPEN_ON_NFS)]
        if names and LOCK not in names and self.own.names():  # coget makes the lock first, and removes it last
            raise SinkError(
                f"{self.path} is needed for partial data, but it contains {names[0]!r}, which coget did not make",
                "remove or rename it, or choose another name",
            )
        for name in names:
            try:
                found = self.own.stat(name)
            except FileNotFoundError:  # removed by another process of this user; then locking fails
                continue
            if name not in NAMES:
                raise SinkError(
                    f"{self.path} is needed for partial data, but it contains {name!r}, which coget did not make",
                    "remove or rename it, or choose another name",
                )
            own_link = stat.S_ISLNK(found.st_mode) and found.st_uid == self._owner  # refused when it is opened
            if not (own_link or (name == DATA and self._is_target(found))):
                self.own.refuse_foreign(name, found)

    def _is_target(self, found: os.stat_result) -> bool:
        with suppress(OSError):
            return os.path.samestat(found, os.stat(self.name, dir_fd=self.outside, follow_symlinks=False))
        return False

    def _end_publication(self) -> None:
        """Remove the data's old name if a crash left the published file with both names."""
        with suppress(FileNotFoundError):
            if self._is_target(self.own.stat(DATA)):
                for name in (JOURNAL, DATA):
                    with suppress(FileNotFoundError):
                        self.own.unlink(name)

    def remove(self) -> None:
        """Remove the directory with all files that coget made in it, and release the lock; do nothing if unlocked.

        The lock file is removed last, and closed before the directory is removed, as NFS keeps open files in it. If
        another process makes a new lock file in between, the directory is not empty, stays, and belongs to that
        process.
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
        """Release the lock. May be called twice."""
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
    """Open the directory, relative to its open parent, if it belongs to this user; remove the access of all others."""
    flags = DIRECTORY | os.O_NOFOLLOW
    try:
        held = os.open(path.name, os.O_PATH | flags, dir_fd=outside)
    except NotADirectoryError:
        raise SinkError(
            f"{path} is needed for partial data, but it is not a directory",
            "remove or rename it, or choose another name",
        ) from None
    try:
        found = os.fstat(held)
        if found.st_uid != owner:
            raise SinkError(
                f"{path} is needed for partial data, but it belongs to another user (uid {found.st_uid})",
                "choose another name, or a directory that others cannot write",
            )
        if found.st_mode & FETCHED:
            raise SinkError(
                f"{path} is needed for partial data, but it contains fetched files",
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
    """Set the mode of a directory to 0700; keep setgid, which gives the data their group."""
    if stat.S_IMODE(found.st_mode) & 0o777 == 0o700:
        return
    mode = stat.S_IMODE(found.st_mode) & stat.S_ISGID | 0o700
    try:
        Path(f"/proc/self/fd/{held}").chmod(mode)  # fchmod refuses an O_PATH descriptor
    except PermissionError:  # a file system without modes: its mount options decide about access
        pass
    except FileNotFoundError:
        raise OSError("/proc is needed, but not mounted") from None


def refuse_outside(target: Path, within: Path | None, outside: int) -> None:
    """Refuse an open directory outside of `within`.

    Its real path is checked, as another user may have put a link on its path.

    :raises SinkError: if the directory is outside
    """
    if within is not None and Path("/proc/self").exists():
        found = Path(f"/proc/self/fd/{outside}").readlink()
        if not found.is_relative_to(within):
            raise SinkError(
                f"{target} would be in another directory, because its path contains a symbolic link",
                "remove the link, or choose another directory",
            )


def _refuse_special(target: Path, outside: int) -> None:
    """Refuse special files before anything is fetched: a rename would replace a device, and fail at a directory."""
    try:
        mode = os.stat(target.name or ".", dir_fd=outside).st_mode
    except FileNotFoundError:
        return
    except OSError as error:
        raise disk_error(error, "write", target) from None
    if stat.S_ISDIR(mode):
        raise SinkError(f"{target} is a directory", "give the path of a file in it")
    if not stat.S_ISREG(mode):
        raise SinkError(f"{target} is not a plain file", "choose another name")
