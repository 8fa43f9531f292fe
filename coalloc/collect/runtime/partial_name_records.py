"""Random names of the partial files of a collect job, stored in this user's records.

Collected files may have any name. Random names cannot be predicted, and never equal the name of a file or
directory that is collected. With the records, the next run finds the partial files of an earlier one.
"""

import os
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from coalloc.history.database import RecordsFile, transaction
from coalloc.util.partial_names import MARK, derived

if TYPE_CHECKING:
    import sqlite3

__all__ = ["PartialNames"]

MOST_DESTINATIONS = 1000
"""Maximum number of destinations that are stored, the most recently used ones."""
READ = "SELECT number FROM collections WHERE folder = ?"
WRITE = "INSERT INTO collections VALUES (?1, ?2, ?3) ON CONFLICT DO UPDATE SET number = ?2, used = ?3"
PRUNE = "DELETE FROM collections WHERE folder NOT IN (SELECT folder FROM collections ORDER BY used DESC LIMIT ?)"


class PartialNames(RecordsFile):
    """The random number of each destination directory of this user; without records, a new one in each run."""

    def number(self, folder: Path, names: Sequence[str]) -> bytes:
        """Return the number of a directory: the stored one, unless it would yield the name of a collected file.

        :param folder: destination directory; it need not exist
        :param names: the files, as paths below it
        """
        place = os.fsencode(os.path.realpath(folder))

        def read_or_make(database: "sqlite3.Connection") -> bytes:
            with transaction(database):
                row = database.execute(READ, (place,)).fetchone()
                number = bytes(row[0]) if row else os.urandom(16)
                if _meets(number, names):
                    number = os.urandom(16)
                database.execute(WRITE, (place, number, time.time()))
                database.execute(PRUNE, (MOST_DESTINATIONS,))
            return number

        return self._use(read_or_make, os.urandom(16), create=True)


def _meets(number: bytes, names: Iterable[str]) -> bool:
    """Return whether a part of these names equals the name of the partial data of one of these files."""
    names = list(names)
    parts = {part.casefold() for name in names if MARK in name.casefold() for part in name.split("/")}
    return bool(parts) and any(derived(number, name).casefold() in parts for name in names)
