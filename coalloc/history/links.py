"""Measurements between servers, in the same file as the history of downloads, and the forecasts based on them.

Each measurement is one row. Forecasts of downloads do not use them, as downloads take other paths.
"""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from coalloc.history.database import RecordsFile, transaction
from coalloc.model.reports import Outcome
from predictors.experience import SMALLEST
from predictors.observation import Forecast, Observation, Query

if TYPE_CHECKING:
    import sqlite3

__all__ = ["EVERYBODY", "MeasuredLink", "Pairs", "forecasts", "observations"]

EVERYBODY = "*"
"""Placeholder for a server: all other servers of a measurement at once."""
MOST_MEASUREMENTS = 1000
"""Number of newest measurements stored per pair."""
RECENT = 30
"""Number of newest measurements per pair that forecasts use."""
STEADY = SMALLEST
NEWEST = """
SELECT source, sink, started, ended, bytes FROM (
    SELECT *, row_number() OVER (PARTITION BY source, sink ORDER BY ended DESC) AS place
    FROM pairs WHERE outcome = 'ok' AND ended > started AND ended <= ?
) WHERE place <= ? ORDER BY ended
"""
PRUNE = """
DELETE FROM pairs WHERE source = ?1 AND sink = ?2
AND ended < (SELECT ended FROM pairs WHERE source = ?1 AND sink = ?2 ORDER BY ended DESC LIMIT 1 OFFSET ?3)
"""


class MeasuredLink(NamedTuple):
    """A steady transfer from one server to another; times in seconds since the epoch.

    Servers are SCHEME://HOST[:PORT]. A transfer from EVERYBODY to a server measures its downlink, a transfer from the
    server to EVERYBODY its uplink.
    """

    source: str
    sink: str
    start: float
    end: float
    bytes: int
    streams: int = 1
    outcome: Outcome = "ok"
    error: str | None = None

    @property
    def rate(self) -> float | None:
        """Bytes per second; None if the transfer failed."""
        return self.bytes / (self.end - self.start) if self.outcome == "ok" and self.end > self.start else None


class Pairs(RecordsFile):
    """The history of measurements between servers."""

    def add(self, measured: Iterable[MeasuredLink]) -> None:
        """Add these measurements."""
        rows = list(measured)
        if rows:  # else no file is made
            self._add(lambda database: _insert(database, rows))

    def observations(self, now: float) -> list[Observation]:
        """Return the newest successful measurements of each pair that had ended by now, in the order of their ends."""

        def read(database: "sqlite3.Connection") -> list[Observation]:
            return observations(MeasuredLink(*row) for row in database.execute(NEWEST, (now, RECENT)))

        nothing: list[Observation] = []
        return self._use(read, nothing)


def _insert(database: "sqlite3.Connection", rows: list[MeasuredLink]) -> None:
    with transaction(database):
        database.executemany("INSERT INTO pairs VALUES (?, ?, ?, ?, ?, ?, ?, ?)", rows)
        database.executemany(PRUNE, {(row.source, row.sink, MOST_MEASUREMENTS - 1) for row in rows})


def observations(measured: Iterable[MeasuredLink]) -> list[Observation]:
    """Return the successful measurements as observations of large transfers with the same rate.

    Forecasters ignore small transfers, but few bytes at a steady rate are as meaningful.
    """
    return [
        Observation(
            each.source, each.start, each.end, each.bytes * STEADY, (each.end - each.start) * STEADY, sink=each.sink
        )
        for each in measured
        if each.outcome == "ok"
    ]


def forecasts(seen: Sequence[Observation], now: float) -> dict[tuple[str, str], Forecast]:
    """Return the forecast of each pair with measurements.

    :param seen: measurements in the order of their ends
    :param now: seconds since the epoch
    """
    if not seen:
        return {}
    from predictors.bank import CONSTANT
    from predictors.selection import Selected

    forecaster = Selected(CONSTANT)
    for observation in seen:
        forecaster.learn(observation)
    pairs = {(each.source, each.sink) for each in seen}
    found = {pair: forecaster.forecast(Query(pair[0], now, sink=pair[1])) for pair in pairs}
    return {pair: forecast for pair, forecast in found.items() if forecast.rates}
