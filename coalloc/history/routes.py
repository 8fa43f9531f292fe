"""The measured routes to servers, in the same file as the history of downloads.

There is one row per server, route and transfer.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from coalloc.depot.measured import LEAST, RECENT, VALID_SECONDS, MeasuredRoute
from coalloc.history.database import RecordsFile, transaction
from coalloc.model import RouteUse

if TYPE_CHECKING:
    import sqlite3

__all__ = ["RouteHistory"]

MOST_MEASUREMENTS = 1000
"""Number of newest measurements stored per server."""
NEWEST = """
SELECT scheme, host, ended, route, bytes, seconds, sessions, opening_seconds, beginning, beginning_seconds FROM (
    SELECT *, row_number() OVER (PARTITION BY scheme, host, route ORDER BY ended DESC) AS place
    FROM routes WHERE ended BETWEEN ? AND ? AND beginning >= ?
) WHERE place <= ? ORDER BY ended
"""
PRUNE = """
DELETE FROM routes WHERE host = ?1
AND ended < (SELECT ended FROM routes WHERE host = ?1 ORDER BY ended DESC LIMIT 1 OFFSET ?2)
"""


class RouteHistory(RecordsFile):
    """The history of routes."""

    def add(self, measured: Iterable[MeasuredRoute]) -> None:
        """Add these measurements."""
        rows = list(measured)
        if rows:  # else no file is made
            self._use(lambda database: _insert(database, rows), None, create=True)

    def newest(self, now: float) -> list[MeasuredRoute]:
        """Return the newest meaningful measurements of each route, in the order of their ends.

        :param now: seconds since the epoch
        """

        def read(database: "sqlite3.Connection") -> list[MeasuredRoute]:
            rows = database.execute(NEWEST, (now - VALID_SECONDS, now, LEAST, RECENT))
            return [MeasuredRoute(scheme, host, ended, RouteUse(*use)) for scheme, host, ended, *use in rows]

        nothing: list[MeasuredRoute] = []
        return self._use(read, nothing)


def _insert(database: "sqlite3.Connection", rows: list[MeasuredRoute]) -> None:
    with transaction(database):
        flat = [(each.scheme, each.host, each.ended, *each.use) for each in rows]
        database.executemany("INSERT INTO routes VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", flat)
        database.executemany(PRUNE, {(row.host, MOST_MEASUREMENTS - 1) for row in rows})
