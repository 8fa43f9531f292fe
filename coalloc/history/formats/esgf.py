"""intake-esgf's database of downloads: one row per file, with its host, seconds and megabytes, in local time."""

import sqlite3
from datetime import datetime

from coalloc.history.formats.log import TransferLog, gather
from predictors.observation import Observation

__all__ = ["TABLE", "read"]

TABLE = "downloads"
"""Table whose presence identifies the database."""
MB = 1e6
Row = tuple[str, str, float, float]


def read(database: sqlite3.Connection) -> TransferLog:
    """Read all downloads; sources are https:// URLs of the hosts, as in intake-esgf's index."""
    rows = database.execute(f"SELECT timestamp, host, transfer_time, transfer_size FROM {TABLE}")
    return gather("intake-esgf's record of downloads", enumerate(rows, 1), _download)


def _download(row: Row) -> Observation:
    when, host, seconds, size = row
    end = datetime.fromisoformat(when).timestamp()
    return Observation(f"https://{host}", end - float(seconds), end, round(float(size) * MB))
