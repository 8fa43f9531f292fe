"""intake-esgf's database of downloads: a row a file, with its host, its seconds and its megabytes, in local time."""

import sqlite3
from datetime import datetime

from coalloc.logs.log import Log, gather
from predictors.observation import Observation

__all__ = ["TABLE", "read"]

TABLE = "downloads"
"""What tells its database from others."""
MB = 1e6
Row = tuple[str, str, float, float]


def read(database: sqlite3.Connection) -> Log:
    """All downloads; hosts are those of https:// URLs, as in its index."""
    rows = database.execute(f"SELECT timestamp, host, transfer_time, transfer_size FROM {TABLE}")
    return gather("what intake-esgf downloaded", enumerate(rows, 1), _download)


def _download(row: Row) -> Observation:
    when, host, seconds, size = row
    end = datetime.fromisoformat(when).timestamp()
    return Observation(f"https://{host}", end - float(seconds), end, round(float(size) * MB))
