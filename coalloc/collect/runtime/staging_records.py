"""Records of the staging areas that this user's collect jobs have made at servers, until they are removed.

A job that is killed leaves its staging areas behind. The next job that uses the server finds them here. Without
records, they stay. `partial_files` keeps its records here, too.
"""

import os
import time
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from coalloc.history.database import RecordsFile, transaction

if TYPE_CHECKING:
    import sqlite3

__all__ = ["StagingRecord", "StagingRecords"]

MOST = 1000
"""Maximum number of staging areas that are stored, the newest ones."""
LONGEST_JOB = 30 * 86400.0
"""Seconds after which a job of another machine, or from before a reboot, is taken to have ended."""
WRITE = "INSERT OR REPLACE INTO staging VALUES (?, ?, ?, NULL, ?, ?, ?)"
PRUNE = "DELETE FROM staging WHERE rowid NOT IN (SELECT rowid FROM staging ORDER BY made DESC LIMIT ?)"
IDENTIFY = "UPDATE staging SET identity = ? WHERE server = ? AND path = ?"
FORGET = "DELETE FROM staging WHERE server = ? AND path = ?"
READ = "SELECT server, path, key, identity, machine, process, made FROM staging"


class StagingRecord(NamedTuple):
    """A staging area.

    :ivar server: label of its server
    :ivar secret: number from which the names of its pieces derive
    :ivar identity: `Entry.unique` of the directory; None if unknown
    """

    server: str
    path: str
    secret: bytes
    identity: str | None = None


class StagingRecords(RecordsFile):
    """The staging areas that are not known to be removed. Its methods write to the disk; call them in a thread."""

    def add(self, record: StagingRecord) -> None:
        """Store an area of this process, before it is made."""
        made = (record.server, record.path, record.secret, _machine(), _process(os.getpid()) or "", time.time())

        def write(database: "sqlite3.Connection") -> None:
            with transaction(database):
                database.execute(WRITE, made)
                database.execute(PRUNE, (MOST,))

        self._add(write)

    def identify(self, record: StagingRecord) -> None:
        """Store the identity of an area's directory."""
        self._write(IDENTIFY, record.identity, record.server, record.path)

    def forget(self, record: StagingRecord) -> None:
        """Remove the record of an area."""
        self._write(FORGET, record.server, record.path)

    def abandoned(self, servers: Collection[str]) -> list[StagingRecord]:
        """Return the areas at these servers whose jobs have ended without removing them."""

        def read(database: "sqlite3.Connection") -> list[StagingRecord]:
            return [
                StagingRecord(server, path, bytes(secret), identity)
                for server, path, secret, identity, machine, process, made in database.execute(READ)
                if server in servers and _is_over(machine, process, made)
            ]

        return self._use(read, [])

    def _write(self, statement: str, *values: str | None) -> None:
        def write(database: "sqlite3.Connection") -> None:
            with transaction(database):
                database.execute(statement, values)

        self._use(write, None)


def _is_over(machine: str, process: str, made: float) -> bool:
    if machine and machine == _machine():
        return _process(int(process.partition(" ")[0])) != process
    return made < time.time() - LONGEST_JOB


def _machine() -> str:
    """Return what identifies this boot, and within which process ids are unique; empty if unknown."""
    try:
        return f"{Path('/proc/sys/kernel/random/boot_id').read_text().strip()} {Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return ""


def _process(number: int) -> str | None:
    """Return a process's id and start, which together are unique on a machine; None if there is no such process."""
    try:
        fields = Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return f"{number} {fields[19]}"
