"""Slots: a limit on the sessions of all coget processes of a machine with one server.

Each slot is a file that the process holding it made and locked (`claims`). Waiting processes stand in line, each with
such a file as a ticket: the oldest ticket whose owner is alive comes first.

The files are in /run/coget if an admin made it, for all users together, else in /tmp/coget-UID. They are not in
XDG_RUNTIME_DIR, because batch jobs have none and would count separately. If no file can be locked, slots are not
counted, as the limit is a courtesy and no reason to fail.

In /run/coget, each user has a directory, named by the user's number, in which only that user writes. So a user can
pretend to hold any number of slots, but cannot change those of others. Three rules keep one user from blocking others:

- A user without a slot of a server gets one, however many slots others hold.
- A user who has waited for `PATIENCE` gets a share: the limit divided by the number of users who hold or want slots.
- Each user has a line of its own: a free slot goes to the first in any line that finds it.

The slots of other users are counted by file names, with a check whether the process in the name is alive, as another
user's file cannot be opened.
"""

import asyncio
import os
import re
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import NamedTuple
from weakref import WeakValueDictionary

from coalloc.engine.limits.claims import Claim, Claims
from coalloc.errors import UsageError

__all__ = ["VARIABLE", "Lease", "Slots", "usual_claims"]

VARIABLE = "COGET_CONNECTIONS"
"""Environment variable: maximum number of sessions with one server, or "off"."""
MOST = 32
"""Default limit: enough streams for one distant source; about the limit of small servers (ProFTPD's default is 30)."""
SHARED = Path("/run/coget")
LOOK, SELDOM = 0.02, 0.5
"""Seconds between checks for a slot by the first in line; others wait in proportion to their position, up to SELDOM."""
PATIENCE = 30.0
"""Seconds after which a waiting user may take a share, even if the limit is then exceeded."""
SEEN = 1000
"""Maximum number of entries read from a directory, as a user could make a million to slow others down."""
LINES: WeakValueDictionary[tuple[Path, str], asyncio.Lock] = WeakValueDictionary()
"""Locks by directory and server: only the task that holds the lock stands in line for this process."""


class Lease:
    """A slot, held until `release` or the end of the process; without a claim if slots are not counted."""

    def __init__(self, claim: Claim | None = None) -> None:
        self._claim = claim

    def release(self) -> None:
        """Release the slot; may be called twice."""
        if self._claim:
            self._claim.release()
        self._claim = None


class _Others(NamedTuple):
    """Other users of a server: the number of their slots, of users who hold or want slots, and whether any waits."""

    slots: int = 0
    users: int = 0
    waiting: bool = False


class Slots(NamedTuple):
    """A limit of `most` sessions with one server, shared by all processes that use the same `folder`."""

    folder: Path
    most: int = MOST

    @classmethod
    def from_environment(cls) -> "Slots | None":
        """Return the slots as set in the environment; None for no limit.

        :raises UsageError: when COGET_CONNECTIONS is not a number of connections or "off"
        """
        value = os.environ.get(VARIABLE, str(MOST))
        if value == "off":
            return None
        if not (value.isascii() and value.isdecimal() and 0 < int(value) < 10_000):
            raise UsageError(f"{VARIABLE} is {value!r}", "set it to a number of connections, 1 or more, or to 'off'")
        return cls(_usual_folder(), int(value))

    @property
    def usable(self) -> bool:
        """Return whether slots can be counted in the directory."""
        with suppress(OSError), self._claims.opened():
            return True
        return False

    @property
    def directory(self) -> Path:
        """The directory of this user's files."""
        return self._claims.path

    @property
    def _is_shared(self) -> bool:
        return self.folder == SHARED

    @property
    def _claims(self) -> Claims:
        """The files with which this user's processes hold or wait for slots."""
        return Claims(self.folder / str(os.geteuid()), 0o755) if self._is_shared else Claims(self.folder)

    def take(self, server: str) -> Lease | None:
        """Take a slot of `server` (HOST:PORT); return None if none is free, or other processes of this user wait."""
        try:
            return None if self._claims.ahead(f"{server}.line.") else self._claim(server)
        except OSError:
            return Lease()

    def wanted(self, server: str) -> bool:
        """Return whether this user's processes wait for `server`, or others do and this user exceeds its share."""
        try:
            if self._claims.ahead(f"{server}.line."):
                return True
            others = self._others(server)
            return others.waiting and self._claims.count(f"{server}.slot.") > self._share(others)
        except OSError:
            return False

    async def wait(self, server: str) -> Lease:
        """Wait in line for a slot of `server`.

        Only one task per process stands in line, as each ticket holder reads the whole line repeatedly.
        """
        line = LINES.setdefault((self.folder, server), asyncio.Lock())
        async with line:
            try:
                ticket = self._claims.add(f"{server}.line.")
            except OSError:
                return Lease()
            try:
                return await self._stand_in_line(server, ticket)
            except OSError:
                return Lease()
            finally:
                ticket.release()

    async def _stand_in_line(self, server: str, ticket: Claim) -> Lease:
        clock = asyncio.get_running_loop().time
        began = clock()
        while True:
            ahead = self._claims.ahead(f"{server}.line.", ticket.name)
            if not ahead and (lease := self._claim(server, patient=clock() - began < PATIENCE)):
                return lease
            await asyncio.sleep(min(SELDOM, LOOK * (1 + ahead)))

    def _claim(self, server: str, patient: bool = True) -> Lease | None:
        """Claim a slot if one is free. If two claims at once exceed the limit, both are given back."""
        if not self._has_room(server, 0, patient):
            return None
        lease = Lease(self._claims.add(f"{server}.slot."))
        try:
            if self._has_room(server, 1, patient):
                return lease
        except OSError:
            lease.release()
            raise
        lease.release()
        return None

    def _has_room(self, server: str, claimed: int, patient: bool) -> bool:
        """Return whether this user may have one more slot, without counting `claimed` of the user's slots."""
        own = self._claims.count(f"{server}.slot.") - claimed
        if not self._is_shared:
            return own < self.most
        others = self._others(server)
        return own == 0 or own + others.slots < self.most or (not patient and own < self._share(others))

    def _share(self, others: _Others) -> int:
        return max(1, self.most // (1 + others.users))

    def _others(self, server: str) -> _Others:
        """Count the slots and tickets of other users at a server, by file names."""
        found = _Others()
        if self._is_shared:
            for names in _of_others(self.folder):
                slots = sum(_lives(name, f"{server}.slot.") for name in names)
                waits = any(_lives(name, f"{server}.line.") for name in names)
                found = _Others(found.slots + slots, found.users + bool(slots or waits), found.waiting or waits)
        return found


def usual_claims() -> Claims:
    """Return this user's files."""
    return Slots(_usual_folder())._claims


def _usual_folder() -> Path:
    return SHARED if os.access(SHARED, os.W_OK) else Path(f"/tmp/coget-{os.geteuid()}")


def _of_others(folder: Path) -> Iterator[list[str]]:
    """Yield the file names in the directory of each other user."""
    with os.scandir(folder) as entries:
        users = [entry.name for entry in islice(entries, SEEN) if entry.name.isdecimal()]
    for user in users:
        if user != str(os.geteuid()):
            with suppress(OSError):
                yield _names_of(user, folder)


def _names_of(user: str, folder: Path) -> list[str]:
    """Return the names in a user's directory.

    :raises OSError: if the user does not own the directory
    """
    directory = os.open(folder / user, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        if str(os.fstat(directory).st_uid) != user:
            raise PermissionError(f"{folder / user} belongs to another user")
        with os.scandir(directory) as entries:
            return [entry.name for entry in islice(entries, SEEN)]
    finally:
        os.close(directory)


def _lives(name: str, prefix: str) -> bool:
    """Return whether a name has this prefix and the process named at its end is alive."""
    made, dash, number = name.removeprefix(prefix).rpartition("-")
    if not (name.startswith(prefix) and made and dash and re.fullmatch("[1-9][0-9]{0,8}", number)):
        return False
    try:
        os.kill(int(number), 0)
    except PermissionError:
        return True
    except OSError:
        return False
    return True
