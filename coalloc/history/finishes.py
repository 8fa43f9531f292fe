"""Errors of forecasts of finish times, in the same file as the history of downloads."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from coalloc.history.database import RecordsFile, transaction

if TYPE_CHECKING:
    import sqlite3

__all__ = ["FinishHistory"]

MOST = 200
"""Number of newest errors stored for each moment: forecasts should follow changes of the network."""
NEWEST = "SELECT moment, error FROM finishes WHERE typeof(error) = 'real' ORDER BY ended"
LARGEST = 6.0
"""Maximum of an error: a few transfers that went quite differently must not decide the bounds of all others."""
PRUNE = """
DELETE FROM finishes WHERE moment = ?1
AND ended < (SELECT ended FROM finishes WHERE moment = ?1 ORDER BY ended DESC LIMIT 1 OFFSET ?2)
"""


class FinishHistory(RecordsFile):
    """The errors of forecasts, each in units of its spread, as in `guarantees.finish`."""

    def errors(self) -> Mapping[str, Sequence[float]]:
        """Return the errors of forecasts made at each moment, "start" or "running"."""
        found: dict[str, list[float]] = {}
        rows: list[tuple[str, float]] = self._use(lambda database: list(database.execute(NEWEST)), [])
        for moment, error in rows:
            found.setdefault(moment, []).append(max(-LARGEST, min(LARGEST, error)))
        return found

    def add(self, errors: Iterable[tuple[str, float]], ended: float) -> None:
        """Add the errors of a transfer's forecasts, each with its moment.

        :param ended: when the transfer ended, in seconds since the epoch
        """
        rows = [(moment, ended, error) for moment, error in errors]
        if rows:
            self._add(lambda database: _insert(database, rows))


def _insert(database: "sqlite3.Connection", rows: Sequence[tuple[str, float, float]]) -> None:
    with transaction(database):
        database.executemany("INSERT INTO finishes VALUES (?, ?, ?)", rows)
        database.executemany(PRUNE, {(moment, MOST - 1) for moment, _, _ in rows})
