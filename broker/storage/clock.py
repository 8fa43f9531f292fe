"""The database's time: what one process writes and another compares with the time of now is of this clock only.

Clocks of hosts differ, by hours where nobody sets them. By the database's a worker is alive or dead, a deadline is
over, work may begin again, and bytes may be moved. How long something took in one process is measured by that process.
"""

import time

from sqlalchemy import ColumnElement, Double, cast, extract, func, literal, select
from sqlalchemy.ext.asyncio import AsyncConnection

__all__ = ["clock", "read_clock"]


def clock(connection: AsyncConnection) -> ColumnElement[float]:
    """Return the time as a part of a statement, in seconds since the epoch, as it is when that is carried out.

    All processes that use one SQLite file are on one host, so there it is that host's time.
    """
    if connection.dialect.name == "sqlite":
        return literal(time.time(), Double)
    return cast(extract("epoch", func.clock_timestamp()), Double)


async def read_clock(connection: AsyncConnection) -> float:
    """Ask for the time, in seconds since the epoch."""
    if connection.dialect.name == "sqlite":
        return time.time()
    return float((await connection.execute(select(clock(connection)))).scalar_one())
