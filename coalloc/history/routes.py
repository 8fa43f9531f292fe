"""The measured routes to servers, in the same file as the history of downloads.

There is one row per server, route and transfer.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from coalloc.history.database import RecordsFile, transaction
from coalloc.history.route_values import LEAST, LONG_SECONDS, RECENT, VALID_SECONDS, MeasuredRoute
from coalloc.model.routes import RouteUse

if TYPE_CHECKING:
    import sqlite3

__all__ = ["RouteHistory"]

MOST_MEASUREMENTS = 1000
"""Number of newest measurements stored per server."""
NEWEST = """
SELECT scheme, host, ended, route, bytes, seconds, sessions, opening_seconds, beginning, beginning_seconds FROM (
    SELECT *, row_number() OVER (PARTITION BY scheme, host, route ORDER BY ended DESC) AS place
    FROM routes WHERE ended BETWEEN ? AND ? AND beginning > 0 AND (beginning >= ? OR beginning_seconds >= ?)
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
            self._add(lambda database: _insert(database, rows))

    def newest(self, now: float) -> list[MeasuredRoute]:
        """Return the newest meaningful measurements of each route, in the order of their ends.

        :param now: seconds since the epoch
        """

        def read(database: "sqlite3.Connection") -> list[MeasuredRoute]:
            rows = database.execute(NEWEST, (now - VALID_SECONDS, now, LEAST, LONG_SECONDS, RECENT))
            return [
                MeasuredRoute(str(scheme), str(host), float(ended), _use(*use)) for scheme, host, ended, *use in rows
            ]

        nothing: list[MeasuredRoute] = []
        return self._use(read, nothing)


def _insert(database: "sqlite3.Connection", rows: list[MeasuredRoute]) -> None:
    with transaction(database):
        flat = [(each.scheme, each.host, each.ended, *each.use) for each in rows]
        database.executemany("INSERT INTO routes VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", flat)
        database.executemany(PRUNE, {(row.host, MOST_MEASUREMENTS - 1) for row in rows})


def _use(
    route: str, nbytes: int, seconds: float, sessions: int, opening: float, beginning: int, took: float
) -> RouteUse:
    """Return the use in a row, with numbers even if it was edited by hand. :raises ValueError:"""
    return RouteUse(str(route), int(nbytes), float(seconds), int(sessions), float(opening), int(beginning), float(took))
