"""The measured routes to servers, in the same file as the history of downloads, and the expected times based on them.

There is one row per server, route and transfer. The expected time is that of a small file: until a session is ready,
and then until 1 MiB has come. Round trips and losses count most in it, as in them routes over depots differ.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from coalloc.history.database import RecordsFile, transaction
from coalloc.history.values import SMALL_FILE, MeasuredRoute
from coalloc.model import RouteUse
from coalloc.schedule.state import median

if TYPE_CHECKING:
    import sqlite3

__all__ = ["RouteHistory", "expected_times"]

MOST_MEASUREMENTS = 1000
"""Number of newest measurements stored per server."""
RECENT = 5
"""Number of newest measurements of a route whose median is expected."""
VALID_SECONDS = 7 * 86400.0
"""Age in seconds at which a measurement does not count any more."""
LEAST = SMALL_FILE // 2
"""Minimum number of first bytes whose time shows the rate; smaller files are over before it has risen."""
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


def expected_times(measured: Iterable[MeasuredRoute]) -> dict[str, dict[str, float]]:
    """Return the expected seconds of a small file by host and route, for the scheme that was measured last.

    :param measured: measurements in the order of their ends
    """
    schemes: dict[str, str] = {}
    seconds: dict[tuple[str, str], dict[str, list[float]]] = {}
    for each in measured:
        schemes[each.host] = each.scheme
        seconds.setdefault((each.scheme, each.host), {}).setdefault(each.use.route, []).append(each.small_seconds)
    return {
        host: {route: median(known) for route, known in seconds[scheme, host].items()}
        for host, scheme in schemes.items()
    }


def _insert(database: "sqlite3.Connection", rows: list[MeasuredRoute]) -> None:
    with transaction(database):
        flat = [(each.scheme, each.host, each.ended, *each.use) for each in rows]
        database.executemany("INSERT INTO routes VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", flat)
        database.executemany(PRUNE, {(row.host, MOST_MEASUREMENTS - 1) for row in rows})
