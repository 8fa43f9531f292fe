"""What this user's transfers achieved, kept in a small SQLite file, and what may be expected from that.

One row a source a transfer. A history that is broken, locked or unwritable never fails a transfer: it warns once
and is then as good as empty. Forecasting itself is `predictors`' part; what to do about sources of which nothing
is known is the scheduler's.
"""

import logging
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Self, TypeVar
from urllib.parse import urlsplit

from coalloc.model import Estimate, Outcome
from coalloc.urls import redact
from predictors.errors import PredictorError
from predictors.experience import SMALLEST
from predictors.observation import Forecast, Observation, Query
from predictors.text import NOTHING

if TYPE_CHECKING:
    import sqlite3

__all__ = ["History", "SourceSummary", "Transfer", "default_path", "source_key"]

Result = TypeVar("Result")
Row = tuple[str | float | None, ...]

log = logging.getLogger(__name__)

KEPT = 10_000
"""Transfers remembered of each source; older ones are dropped."""
RECENT = 30
"""Of these the newest on which forecasts rest: more would hold up each transfer's start, and tell little else."""
PATIENCE = 2.0
"""Seconds to wait for another coget that is writing."""
VERSION = 1
SCHEMA = (
    """
    CREATE TABLE transfers (
        source TEXT NOT NULL,          -- scheme://host:port
        url TEXT NOT NULL,             -- without password
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
    f"PRAGMA user_version = {VERSION}",
)
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
DEFAULT_PORTS = {"ftp": 21, "gsiftp": 2811, "http": 80, "https": 443, "sftp": 22, "sshftp": 22}


class Transfer(NamedTuple):
    """One source's part in one transfer: times in seconds since the epoch, durations in seconds."""

    url: str
    start: float
    end: float
    bytes: int
    busy_seconds: float
    setup_seconds: float | None
    ranges: int
    streams: int
    strategy: str
    outcome: Outcome
    error: str | None = None


class SourceSummary(NamedTuple):
    """What one source achieved so far.

    `rate` is bytes per second over all its transfers that went well, `last_rate` that of the newest of them,
    `setup_seconds` the mean time to the first byte of a range; each is None while there was none. `failures`
    counts the transfers in which it failed or sent wrong bytes, `last` is when it was last used (since the epoch).
    """

    source: str
    transfers: int
    bytes: int
    rate: float | None
    last_rate: float | None
    setup_seconds: float | None
    failures: int
    last: float


def default_path() -> Path | None:
    """Where the history is: COGET_HISTORY, or else below XDG_DATA_HOME. None when COGET_HISTORY is empty or `off`."""
    named = os.environ.get("COGET_HISTORY")
    if named is not None:
        return None if named in ("", "off") else Path(named).expanduser()
    data = os.environ.get("XDG_DATA_HOME") or "~/.local/share"
    return Path(data).expanduser() / "coget" / "history.sqlite"


def source_key(url: str) -> str:
    """What counts as one source: scheme, host and port of a URL; a scheme's own port is left out.

    >>> source_key("FTP://ann:secret@Host.example:21/a"), source_key("gsiftp://[::1]:2812/a")
    ('ftp://host.example', 'gsiftp://[::1]:2812')
    """
    parts = urlsplit(url)
    host = parts.hostname or ""
    if ":" in host:
        host = f"[{host}]"
    port = "" if parts.port in (None, DEFAULT_PORTS.get(parts.scheme)) else f":{parts.port}"
    return f"{parts.scheme}://{host}{port}"


class History:
    """The history in the file at `path`; with None, one that is always empty.

    Nothing is open between calls, so that any number of cogets can use one file, and a long transfer holds none.
    """

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self._warned = False

    @classmethod
    def open(cls) -> Self:
        """This user's history, at `default_path()`."""
        return cls(default_path())

    def add(self, transfers: Iterable[Transfer]) -> None:
        """Remember these; parts that were never used say nothing and are left out."""
        rows = [_row(transfer) for transfer in transfers if transfer.outcome != "unused"]
        if rows:  # else no file is made
            self._use(lambda database: _insert(database, rows), 0, create=True)

    def estimates(self, urls: Iterable[str], now: float) -> dict[str, Estimate]:
        """What to expect of each URL in a transfer that begins at `now`; rate None where nothing is known.

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
        """All transfers that went well, in the order of their starts."""
        query = f"{OBSERVED} ORDER BY started"
        nothing: list[Observation] = []
        return self._use(lambda database: [Observation(*row) for row in database.execute(query)], nothing)

    def remember(self, transfers: Iterable[Transfer]) -> int:
        """Remember what other programs did. Those that are remembered already are left out; how many were new."""
        rows = [_row(transfer) for transfer in transfers]
        return self._use(lambda database: _insert(database, _unknown(database, rows)), 0, create=True)

    def summary(self) -> list[SourceSummary]:
        """What each source achieved so far, the one used last first."""
        return self._use(lambda database: [SourceSummary(*row) for row in database.execute(SUMMARY)], [])

    def _use(self, work: "Callable[[sqlite3.Connection], Result]", nothing: Result, create: bool = False) -> Result:
        """What `work` makes of the database, or `nothing` when there is none or it cannot be used."""
        if self.path is None:
            return nothing
        import sqlite3

        try:
            if not (create or self.path.exists()):
                return nothing
            with closing(_connect(self.path)) as database:
                return work(database)
        except (sqlite3.Error, OSError, PredictorError, TypeError) as error:  # the last two: someone edited a row
            self._warn(error)
            return nothing

    def _warn(self, error: Exception) -> None:
        if not self._warned:
            log.warning(
                "the history of transfers in %s cannot be used: %s. This harms no transfer; "
                "make it writable, remove it to begin anew, or set COGET_HISTORY=off",
                self.path,
                error,
            )
        self._warned = True


def _connect(path: Path) -> "sqlite3.Connection":
    """Open the file, made with its tables if need be.

    With SQLite's rollback journal, not its write-ahead log: that one does not work on NFS, where homes often are.
    """
    import sqlite3

    path.parent.mkdir(parents=True, exist_ok=True)
    database = sqlite3.connect(path, timeout=PATIENCE, isolation_level=None)
    try:
        if not _version(database):
            _create(database)
        if _version(database) > VERSION:
            raise sqlite3.DatabaseError("it was written by a newer coget")
    except BaseException:
        database.close()
        raise
    return database


def _create(database: "sqlite3.Connection") -> None:
    with _transaction(database):
        if not _version(database):  # else another coget was first
            for statement in SCHEMA:
                database.execute(statement)


def _version(database: "sqlite3.Connection") -> int:
    return int(database.execute("PRAGMA user_version").fetchone()[0])


@contextmanager
def _transaction(database: "sqlite3.Connection") -> Iterator[None]:
    """The only writer from its first statement on; what was done is kept only if the block ends well."""
    database.execute("BEGIN IMMEDIATE")
    with database:
        yield


def _unknown(database: "sqlite3.Connection", rows: list[Row]) -> list[Row]:
    """Those that are not in the database, each once."""
    known = "SELECT 1 FROM transfers WHERE source = ? AND started = ? AND ended = ? AND bytes = ?"
    new = {(row[0], row[2], row[3], row[6]): row for row in rows}
    return [row for key, row in new.items() if not database.execute(known, key).fetchone()]


def _insert(database: "sqlite3.Connection", rows: list[Row]) -> int:
    if not rows:
        return 0
    with _transaction(database):
        database.executemany(f"INSERT INTO transfers VALUES ({', '.join('?' * len(rows[0]))})", rows)
        database.executemany(PRUNE, {(row[0], KEPT - 1) for row in rows})
    return len(rows)


def _newest(database: "sqlite3.Connection", sources: set[str], now: float) -> list[Observation]:
    """The newest of each source that had ended by now, in the order of their ends."""
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


def _row(transfer: Transfer) -> Row:
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
