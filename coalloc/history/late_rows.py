"""Rows that could not be stored because another program had the user's file locked.

They are written to a second file beside it, with the same tables, and moved by the next use of the first one.
"""

from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterator

__all__ = ["is_locked", "late_path", "merge"]

TABLES = ("transfers", "pairs", "routes", "finishes", "staging", "fetched")
LOCKED = (5, 6)
"""SQLITE_BUSY and SQLITE_LOCKED, without the rest of an extended code."""


def late_path(path: Path) -> Path:
    """Return the path of the second file."""
    return path.with_name(f"{path.name}-late")


def is_locked(error: Exception) -> bool:
    """Return whether this error of SQLite means that another connection has the file locked."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in LOCKED


def merge(database: "sqlite3.Connection", late: Path) -> None:
    """Move the rows of the second file, in one transaction over both; leave them there if a file is locked now.

    The second file stays, as another process may be about to write to it.
    """
    import sqlite3

    with suppress(sqlite3.Error), _attached(database, late):
        if not any(database.execute(f"SELECT EXISTS (SELECT 1 FROM late.{table})").fetchone()[0] for table in TABLES):
            return
        database.execute("BEGIN IMMEDIATE")
        with database:
            for table in TABLES:
                database.execute(f"INSERT OR REPLACE INTO main.{table} SELECT * FROM late.{table}")
                database.execute(f"DELETE FROM late.{table}")


@contextmanager
def _attached(database: "sqlite3.Connection", late: Path) -> "Iterator[None]":
    """Attach the second file, and do not wait for locks meanwhile."""
    seconds = database.execute("PRAGMA busy_timeout").fetchone()[0]
    database.execute("ATTACH ? AS late", (str(late),))
    try:
        database.execute("PRAGMA busy_timeout = 0")
        yield
    finally:
        database.execute(f"PRAGMA busy_timeout = {seconds}")
        database.execute("DETACH late")
