"""The results of this user's transfers, and the forecasts based on them.

There is one row per source and transfer, in the file of `database`. `predictors` makes the forecasts; the scheduler
handles sources without a forecast.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from coalloc.history.database import RecordsFile, Row, transaction
from coalloc.history.values import PastTransfer, SourceSummary, source_key
from coalloc.model.forecasts import Estimate
from coalloc.safe_text import redact
from predictors.experience import NOTHING, SMALLEST
from predictors.observation import Forecast, Observation, Query

if TYPE_CHECKING:
    import sqlite3

__all__ = ["TransferHistory"]

MOST_TRANSFERS = 10_000
"""Number of newest transfers stored per source."""
RECENT = 30
"""Number of newest transfers per source for forecasts, below `SMALLEST` and above it each; more would take time."""
OBSERVED = """
SELECT source, started, ended, bytes, busy_seconds, setup_seconds, ranges, streams
FROM transfers WHERE ended > started AND outcome IN ('ok', 'slow')
"""
NEWEST = f"{OBSERVED} AND source = ? AND (bytes >= ?) = ? ORDER BY ended DESC LIMIT ?"
# With max() as the only aggregate, SQLite takes the other columns from the row that has the maximum.
SUMMARY = """
WITH
    every AS (SELECT *, outcome IN ('ok', 'slow') AS well FROM transfers),
    newest AS (SELECT source, max(ended), bytes / nullif(busy_seconds, 0) AS rate FROM every WHERE well GROUP BY source)
SELECT source, count(*), sum(bytes), sum(well * bytes) / nullif(sum(well * busy_seconds), 0), newest.rate,
    avg(setup_seconds), sum(NOT well), max(ended)
FROM every LEFT JOIN newest USING (source)
GROUP BY source ORDER BY max(ended) DESC
"""
PRUNE = """
DELETE FROM transfers WHERE source = ?1
AND ended < (SELECT ended FROM transfers WHERE source = ?1 ORDER BY ended DESC LIMIT 1 OFFSET ?2)
"""


class TransferHistory(RecordsFile):
    """The history of downloads."""

    def add(self, transfers: Iterable[PastTransfer]) -> None:
        """Add these transfers, without sources that were not used."""
        rows = [_row(transfer) for transfer in transfers if transfer.outcome != "unused"]
        if rows:  # else no file is made
            self._add(lambda database: _insert(database, rows))

    def estimates(self, urls: Iterable[str], now: float) -> dict[str, Estimate]:
        """Return the forecast for each URL in a transfer that begins at `now`; its rate is None if nothing is known.

        :param now: seconds since the epoch
        """
        keys = {url: source_key(url) for url in urls}
        nothing: list[Observation] = []
        seen = self._use(lambda database: _newest(database, set(keys.values()), now), nothing)
        if not seen:
            return dict.fromkeys(keys, Estimate(reason=NOTHING))
        from predictors.bank import CONSTANT
        from predictors.selection import Selected

        forecaster = Selected(CONSTANT)
        for observation in seen:
            forecaster.learn(observation)
        found = {url: forecaster.forecast(Query(key, now)) for url, key in keys.items()}
        return {url: _estimate(forecast) for url, forecast in found.items()}

    def observations(self) -> list[Observation]:
        """Return all successful transfers, in the order of their starts."""
        query = f"{OBSERVED} ORDER BY started"
        nothing: list[Observation] = []
        return self._use(lambda database: [Observation(*row) for row in database.execute(query)], nothing)

    def remember(self, transfers: Iterable[PastTransfer]) -> int:
        """Add transfers of other programs that are not stored yet; return their number."""
        rows = [_row(transfer) for transfer in transfers]
        return self._use(lambda database: _insert_unknown(database, rows), 0, create=True)

    def summary(self) -> list[SourceSummary]:
        """Return the results of each source so far, the last used source first."""
        return self._use(lambda database: [SourceSummary(*row) for row in database.execute(SUMMARY)], [])


def _unknown(database: "sqlite3.Connection", rows: list[Row]) -> list[Row]:
    """Return the rows that are not in the database, each once."""
    known = "SELECT 1 FROM transfers WHERE source = ? AND started = ? AND ended = ? AND bytes = ?"
    new = {(row[0], row[2], row[3], row[6]): row for row in rows}
    return [row for key, row in new.items() if not database.execute(known, key).fetchone()]


def _insert(database: "sqlite3.Connection", rows: list[Row]) -> None:
    with transaction(database):
        _put(database, rows)


def _insert_unknown(database: "sqlite3.Connection", rows: list[Row]) -> int:
    """Insert the rows that are not in the database; return their number."""
    with transaction(database):  # before the query: another process may insert the same rows
        new = _unknown(database, rows)
        _put(database, new)
    return len(new)


def _put(database: "sqlite3.Connection", rows: list[Row]) -> None:
    if rows:
        database.executemany(f"INSERT INTO transfers VALUES ({', '.join('?' * len(rows[0]))})", rows)
        database.executemany(PRUNE, {(row[0], MOST_TRANSFERS - 1) for row in rows})


def _newest(database: "sqlite3.Connection", sources: set[str], now: float) -> list[Observation]:
    """Return the newest transfers of each source that had ended by now, in the order of their ends."""
    found = [
        Observation(*row)
        for source in sources
        for large in (True, False)
        for row in database.execute(NEWEST, (source, SMALLEST, large, RECENT))
    ]
    return sorted((each for each in found if each.end <= now), key=lambda each: each.end)


def _estimate(forecast: Forecast) -> Estimate:
    rates = forecast.rates
    if rates is None:
        return Estimate(forecast.setup_seconds, reason=forecast.reason)
    return Estimate(forecast.setup_seconds, rates.p50, forecast.reason, (rates.p10, rates.p90))


def _row(transfer: PastTransfer) -> Row:
    return (
        source_key(transfer.url),
        redact(transfer.url),
        transfer.start,
        transfer.end,
        transfer.setup_seconds,
        transfer.busy_seconds,
        transfer.bytes,
        transfer.ranges,
        transfer.streams,
        transfer.strategy,
        transfer.outcome,
        transfer.error,
    )
