"""Slots: how many sessions all cogets of a machine have with one server at a time. Who needs one, and when, others say.

Each slot is a file, locked (flock) by the process that has it, so the kernel gives it back when that process ends,
however it ends. Those who wait stand in line, each with a locked file as a ticket: the oldest ticket whose owner lives
comes first. Files are removed when they are let go; those of processes that were killed are found unlocked and used.

The files lie in /run/coget if an administrator made it, for all users together, else in /tmp/coget-UID. Not in
XDG_RUNTIME_DIR: batch jobs have none, and would count apart. Where no file can be locked nothing is counted, as
a cap is a courtesy and no reason to fail.
"""

import asyncio
import fcntl
import os
import stat
import time
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from coalloc.errors import UsageError

__all__ = ["VARIABLE", "Lease", "Slots"]

VARIABLE = "COGET_CONNECTIONS"
"""Environment variable: sessions with one server, or "off"."""
MOST = 32
"""As many streams as one far source may be worth; about what small servers take at all (ProFTPD as shipped: 30)."""
SHARED = Path("/run/coget")
LOOK, SELDOM = 0.02, 0.5
"""Seconds between looks of the first in line; of others, as many times that as they are behind, but no more."""


class _Claim(NamedTuple):
    """A file that this process has locked."""

    path: Path
    fd: int

    def release(self) -> None:
        with suppress(OSError):  # of another user, in a folder that all share: its lock is what counts
            self.path.unlink()
        os.close(self.fd)


class Lease:
    """A slot that is held, until `release` or the end of the process; none where nothing is counted."""

    def __init__(self, claim: _Claim | None = None) -> None:
        self._claim = claim

    def release(self) -> None:
        """Let go; may be called twice."""
        if self._claim:
            self._claim.release()
        self._claim = None


class Slots(NamedTuple):
    """At most `most` sessions with one server, by all processes that use the same `folder`."""

    folder: Path
    most: int = MOST

    @classmethod
    def from_environment(cls) -> "Slots | None":
        """As the environment wants it; None for no cap.

        :raises UsageError: when COGET_CONNECTIONS makes no sense
        """
        said = os.environ.get(VARIABLE, str(MOST))
        if said == "off":
            return None
        if not (said.isascii() and said.isdecimal() and 0 < int(said) < 10_000):
            raise UsageError(f"{VARIABLE} is {said!r}", "set it to a number of connections, 1 or more, or to 'off'")
        return cls(SHARED if os.access(SHARED, os.W_OK) else Path(f"/tmp/coget-{os.geteuid()}"), int(said))

    @property
    def usable(self) -> bool:
        """Whether anything can be counted in its folder."""
        with suppress(OSError):
            self._prepare()
            return os.access(self.folder, os.W_OK | os.X_OK)
        return False

    def take(self, server: str) -> Lease | None:
        """A slot of `server` (HOST:PORT), or None when none is free or others wait for it."""
        try:
            self._prepare()
            return None if self._ahead(server) else self._claim_slot(server)
        except OSError:
            return Lease()

    def wanted(self, server: str) -> bool:
        """Whether somebody waits for slots of `server`."""
        try:
            return self._ahead(server) > 0
        except OSError:
            return False

    async def wait(self, server: str) -> Lease:
        """A slot of `server`, when all who came before have theirs."""
        try:
            self._prepare()
            name = self.folder / f"{server}.line.{time.monotonic_ns():020}-{os.getpid()}"
            while not (ticket := _claim(name)):
                pass  # somebody looks whether it is dead
        except OSError:
            return Lease()
        try:
            return await self._stand_in_line(server, ticket)
        except OSError:
            return Lease()
        finally:
            ticket.release()

    async def _stand_in_line(self, server: str, ticket: _Claim) -> Lease:
        while True:
            ahead = self._ahead(server, ticket.path)
            if not ahead and (lease := self._claim_slot(server)):
                return lease
            await asyncio.sleep(min(SELDOM, LOOK * (1 + ahead)))

    def _ahead(self, server: str, ticket: Path | None = None) -> int:
        """How many stand in line before this ticket, or at all."""
        line = sorted(path for path in self.folder.iterdir() if path.name.startswith(f"{server}.line."))
        if ticket:
            line = [path for path in line if path < ticket]
        for i, path in enumerate(line):
            dead = _claim(path)
            if dead is None:
                return len(line) - i
            dead.release()
        return 0

    def _claim_slot(self, server: str) -> Lease | None:
        for number in range(self.most):
            if claim := _claim(self.folder / f"{server}.slot.{number}"):
                return Lease(claim)
        return None

    def _prepare(self) -> None:
        """Make the folder; take none that somebody else may have laid there to tamper with.

        :raises OSError: when it cannot be used
        """
        if self.folder == SHARED:
            return
        with suppress(FileExistsError):
            self.folder.mkdir(0o700)
        found = self.folder.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o022:
            raise PermissionError(f"{self.folder} is not ours alone")


def _claim(path: Path) -> _Claim | None:
    """Lock this file, made if it is missing; None while somebody has it."""
    while True:
        fd = _open(path)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(fd)
            return None
        except OSError:
            os.close(fd)
            raise
        if os.fstat(fd).st_nlink:
            return _Claim(path, fd)
        os.close(fd)  # whoever had it removed it just now: what is locked has no name any more


def _open(path: Path) -> int:
    """Another user's file too: in a folder that all may write to, the kernel refuses O_CREAT for those."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
    while True:
        with suppress(FileNotFoundError):
            return os.open(path, flags)
        with suppress(FileExistsError):
            fd = os.open(path, flags | os.O_CREAT | os.O_EXCL, 0o644)
            os.fchmod(fd, 0o644)  # whatever the umask says, all users can lock it
            return fd
