"""Files that this user has fetched from lists and directories, so that the next run recognises those that are whole.

A file counts as whole if it is, by its size, times and inode, the one that coget wrote, and one of its servers still
states the version (ETag, Last-Modified, MDTM) that it stated then.
"""

import os
import re
import stat
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from coalloc.history.database import RecordsFile, transaction
from coalloc.history.waiting_rows import WaitingRows
from coalloc.model.replicas import Stat
from coalloc.model.validators import identifies
from coalloc.safe_text import without_login

if TYPE_CHECKING:
    import sqlite3

__all__ = ["FetchedFile", "FetchedFiles", "FetchedGroup", "identity"]

MOST_FILES = 1_000_000
"""Maximum number of files that are stored, the newest ones."""
SETTLED = 60.0
"""Seconds after which a date counts as a version: servers' clocks may be wrong."""
DATE = re.compile(r"(?:([0-9]{14})|([0-9]{1,11}))(\.[0-9]{0,9})?")
"""A stamp YYYYMMDDHHMMSS, or seconds since 1970, with a fraction."""
READ = "SELECT url, validator, size FROM fetched WHERE path = ? AND identity = ?"
WRITE = "INSERT OR REPLACE INTO fetched VALUES (?, ?, ?, ?, ?, ?)"
FORGET = "DELETE FROM fetched WHERE path = ? AND identity != ?"
PRUNE = "DELETE FROM fetched WHERE rowid <= (SELECT max(rowid) FROM fetched) - ?"


class FetchedFile(NamedTuple):
    """A complete file: its path, its `identity`, and the versions that its servers stated, by URL."""

    path: Path
    identity: str
    versions: Mapping[str, Stat]


def identity(path: Path) -> str | None:
    """Return what changes whenever a regular file is replaced or written; None if there is no such file."""
    try:
        found = os.lstat(path)
    except (OSError, ValueError):
        return None
    return _identity(found) if stat.S_ISREG(found.st_mode) else None


def _identity(found: os.stat_result) -> str:
    return f"{found.st_dev}:{found.st_ino}:{found.st_size}:{found.st_mtime_ns}:{found.st_ctime_ns}"


class FetchedFiles(RecordsFile):
    """The files that this user has fetched."""

    def is_whole(self, path: Path, versions: Mapping[str, Stat]) -> bool:
        """Return whether the file at `path` is known to be one of these versions, which servers state now, by URL."""
        now = identity(path)
        if now is None:
            return False
        place = os.fsencode(os.path.realpath(path))
        stated = {(_hashed(url), each.validator, each.size) for url, each in versions.items() if each.validator}

        def known(database: "sqlite3.Connection") -> bool:
            return not stated.isdisjoint(database.execute(READ, (place, now)))

        return self._use(known, False)

    def add(self, files: Iterable[FetchedFile]) -> None:
        """Add complete files."""
        now = time.time()
        rows = [
            (os.fsencode(os.path.realpath(file.path)), _hashed(url), file.identity, each.validator, each.size, now)
            for file in files
            for url, each in file.versions.items()
            if each.validator and identifies(each.validator) and not _is_fresh(each.validator, now)
        ]

        def write(database: "sqlite3.Connection") -> None:
            with transaction(database):
                database.executemany(FORGET, {(row[0], row[2]) for row in rows})
                database.executemany(WRITE, rows)
                database.execute(PRUNE, (MOST_FILES,))

        if rows:
            self._add(write)


class FetchedGroup:
    """Complete files that are stored in groups; `flush` stores those that wait, and must be called at the end."""

    def __init__(self, files: FetchedFiles) -> None:
        self.files = files
        self._waiting = WaitingRows(files.add)
        self.flush = self._waiting.flush

    def add(self, path: Path, written: os.stat_result, versions: Mapping[str, Stat]) -> None:
        """Add a file that was just completed, unless it has been replaced or changed already.

        :param written: its state before it got its name; only the time of its last change (ctime) may differ since
        """
        found, same = identity(path), _identity(written).rpartition(":")[0]
        if found and found.rpartition(":")[0] == same:
            self._waiting.add([FetchedFile(path, found, versions)])


def _is_fresh(validator: str, now: float) -> bool:
    """Return whether this is a date so recent that the file may change without another one (RFC 9110, 8.8.2.2)."""
    date = _date(validator)
    return date is not None and date > now - SETTLED


def _date(validator: str) -> float | None:
    """Return the date that a version is, in seconds since 1970; None if it is none.

    HTTP servers state "..., 01 Jan 2026 00:00:00 GMT", GridFTP servers seconds, and FTP servers a stamp (MDTM).

    >>> _date("1767225600"), _date("20260101000000.500"), _date('"1767225600"')
    (1767225600.0, 1767225600.5, None)
    """
    if validator.endswith("GMT"):
        from email.utils import parsedate_to_datetime  # imported here because most servers state an ETag

        with suppress(ValueError, OverflowError):
            return parsedate_to_datetime(validator).timestamp()
    elif found := DATE.fullmatch(validator):
        with suppress(ValueError):
            stamp, seconds, part = found.groups()
            whole = datetime.strptime(f"{stamp}Z", "%Y%m%d%H%M%S%z").timestamp() if stamp else float(seconds)
            return whole + float(f"0{part or ''}")
    return None


def _hashed(url: str) -> str:
    """Return a hash of the whole URL, of which a query may contain a key, but also name the file."""
    from hashlib import sha256  # loads OpenSSL

    return sha256(without_login(url).encode(errors="surrogateescape")).hexdigest()
