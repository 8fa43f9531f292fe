"""This user's SQLite file, which is made if needed.

It has the results of transfers, measured links and routes, the numbers from which names of collect jobs' partial files
derive, and the directories that these jobs made at servers. A file that is broken, locked or unwritable never fails a
transfer: one warning is logged, and it counts as empty. While it is locked, new rows wait in a second file, as
`late_rows` says.
"""

import logging
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Self, TypeVar

from coalloc.history.late_rows import is_locked, late_path, merge
from predictors.errors import PredictorError

if TYPE_CHECKING:
    import sqlite3

__all__ = ["RecordsFile", "Row", "default_path", "keep_private", "transaction"]

Result = TypeVar("Result")
Row = tuple[str | float | None, ...]

log = logging.getLogger(__name__)

PATIENCE = 2.0
"""Seconds to wait for another coget process that is writing."""
SCHEMAS = (
    (
        """
        CREATE TABLE transfers (
            source TEXT NOT NULL,          -- scheme://host:port
            url TEXT NOT NULL,             -- as redacted for messages
            started REAL NOT NULL,         -- seconds since the epoch
            ended REAL NOT NULL,
            setup_seconds REAL,            -- mean time to the first byte of a range
            busy_seconds REAL NOT NULL,    -- time spent on its ranges, set-up included
            bytes INTEGER NOT NULL,
            ranges INTEGER NOT NULL,
            streams INTEGER NOT NULL,
            strategy TEXT NOT NULL,
            outcome TEXT NOT NULL,
            error TEXT
        )
        """,
        "CREATE INDEX by_source ON transfers (source, ended)",
    ),
    (
        """
        CREATE TABLE pairs (
            source TEXT NOT NULL,          -- scheme://host:port, or * for all servers at once
            sink TEXT NOT NULL,            -- as source
            started REAL NOT NULL,         -- seconds since the epoch
            ended REAL NOT NULL,
            bytes INTEGER NOT NULL,
            streams INTEGER NOT NULL,
            outcome TEXT NOT NULL,
            error TEXT
        )
        """,
        "CREATE INDEX by_pair ON pairs (source, sink, ended)",
    ),
    (
        """
        CREATE TABLE collections (
            folder BLOB PRIMARY KEY,       -- a directory to which files are collected
            number BLOB NOT NULL,          -- random; the names of its partial files derive from it
            used REAL NOT NULL             -- seconds since the epoch
        )
        """,
    ),
    (
        """
        CREATE TABLE routes (
            scheme TEXT NOT NULL,
            host TEXT NOT NULL,            -- of the server
            ended REAL NOT NULL,           -- seconds since the epoch
            route TEXT NOT NULL,           -- depots, as for --via
            bytes INTEGER NOT NULL,
            seconds REAL NOT NULL,         -- in which it was busy
            sessions INTEGER NOT NULL,
            opening_seconds REAL NOT NULL,
            beginning INTEGER NOT NULL,    -- number of its first bytes
            beginning_seconds REAL NOT NULL
        )
        """,
        "CREATE INDEX routes_by_host ON routes (host, ended)",
    ),
    (
        """
        CREATE TABLE finishes (
            moment TEXT NOT NULL,          -- when the forecast was made: start or running
            ended REAL NOT NULL,           -- of the transfer, seconds since the epoch
            error REAL NOT NULL            -- logarithm of actual / forecast seconds, in units of the spread
        )
        """,
        "CREATE INDEX finishes_by_moment ON finishes (moment, ended)",
    ),
    (
        """
        CREATE TABLE staging (
            server TEXT NOT NULL,          -- scheme://host:port
            path TEXT NOT NULL,            -- of a directory that a collect job made there
            key BLOB NOT NULL,             -- random; names of the job's files in it derive from it
            identity TEXT,                 -- of the directory at the server; NULL until it is made
            machine TEXT NOT NULL,         -- boot and process namespace of the job
            process TEXT NOT NULL,         -- its process id and start
            made REAL NOT NULL,            -- seconds since the epoch
            PRIMARY KEY (server, path)
        )
        """,
    ),
    (
        """
        CREATE TABLE fetched (
            path BLOB NOT NULL,            -- of a complete file on this machine
            url TEXT NOT NULL,             -- its hash
            identity TEXT NOT NULL,        -- device, inode, size and times of the file
            validator TEXT NOT NULL,       -- version that the server stated
            size INTEGER NOT NULL,
            made REAL NOT NULL,            -- seconds since the epoch
            PRIMARY KEY (path, url)
        )
        """,
    ),
)
"""Statements that upgrade the file from each version to the next."""


def default_path() -> Path | None:
    """Return the file's path: COGET_HISTORY, or else below XDG_DATA_HOME. None if COGET_HISTORY is empty or `off`."""
    named = os.environ.get("COGET_HISTORY")
    if named is not None:
        return None if named in ("", "off") else Path(named).expanduser()
    data = os.environ.get("XDG_DATA_HOME") or "~/.local/share"
    return Path(data).expanduser() / "coget" / "history.sqlite"


class RecordsFile:
    """The records in the file at `path`; if it is None, there are none, and none are stored.

    Nothing is open between calls, so that any number of coget processes can use one file, and a long transfer does not
    lock it.
    """

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self._warned = False

    @classmethod
    def open(cls) -> Self:
        """Return this user's records, at `default_path()`."""
        return cls(default_path())

    def _use(self, work: "Callable[[sqlite3.Connection], Result]", nothing: Result, create: bool = False) -> Result:
        """Return the result of `work` with the database, or `nothing` if the file does not exist or cannot be used."""
        if self.path is None:
            return nothing
        import sqlite3

        try:
            if not (create or self.path.exists()):
                return nothing
            return self._open(self.path, work)
        except (sqlite3.Error, OSError, PredictorError, TypeError, ValueError) as error:  # also: rows edited by hand
            self._warn(error)
            return nothing

    def _add(self, write: "Callable[[sqlite3.Connection], None]") -> None:
        """Write new rows to tables that `late_rows` knows; while the file is locked, to those of the second file."""
        if self.path is None:
            return
        import sqlite3

        try:
            try:
                self._open(self.path, write)
            except sqlite3.OperationalError as error:
                if not is_locked(error):
                    raise
                self._open(late_path(self.path), write)
        except (sqlite3.Error, OSError) as error:
            self._warn(error)

    def _open(self, path: Path, work: "Callable[[sqlite3.Connection], Result]") -> Result:
        with closing(_connect(path)) as database:
            if path == self.path and (late := late_path(path)).exists():
                merge(database, late)
            return work(database)

    def _warn(self, error: Exception) -> None:
        if not self._warned:
            log.warning(
                "cannot use the history of transfers in %s: %s. Transfers are not affected. "
                "Make it writable, remove it to start a new one, or set COGET_HISTORY=off",
                self.path,
                error,
            )
        self._warned = True


def _connect(path: Path) -> "sqlite3.Connection":
    """Open the file; make it with its tables if needed.

    It uses SQLite's rollback journal, because the write-ahead log does not work on NFS, where homes often are.
    """
    import sqlite3

    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    keep_private(path)
    database = sqlite3.connect(path, timeout=PATIENCE, isolation_level=None)
    try:
        if _version(database) < len(SCHEMAS):
            _upgrade(database)
        if _version(database) > len(SCHEMAS):
            raise sqlite3.DatabaseError("it was written by a newer coget")
    except BaseException:
        database.close()
        raise
    return database


def keep_private(path: Path) -> None:
    """Make a file that only its owner can read; if it exists, remove the access of others: URLs can contain keys.

    SQLite gives its journal the mode of the database.
    """
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    except FileExistsError:
        # By path: closing a descriptor of the file would release the locks that SQLite holds in this process.
        with suppress(FileNotFoundError):
            found = path.stat()
            if stat.S_ISREG(found.st_mode) and found.st_mode & 0o077 and found.st_uid == os.geteuid():
                path.chmod(0o600)


def _upgrade(database: "sqlite3.Connection") -> None:
    with transaction(database):
        for schema in SCHEMAS[_version(database) :]:  # none if another coget process was first
            for statement in schema:
                database.execute(statement)
        database.execute(f"PRAGMA user_version = {max(_version(database), len(SCHEMAS))}")


def _version(database: "sqlite3.Connection") -> int:
    return int(database.execute("PRAGMA user_version").fetchone()[0])


@contextmanager
def transaction(database: "sqlite3.Connection") -> Iterator[None]:
    """Run a block as the only writer; keep its changes only if it succeeds."""
    database.execute("BEGIN IMMEDIATE")
    with database:
        yield
