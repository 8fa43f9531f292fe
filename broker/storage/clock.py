"""The database's clock, used for every time that one process writes and another compares with the current time.

Clocks of hosts can differ by hours if they are not synchronized. The database's clock decides whether a worker is
alive, a deadline has passed, work may begin again, or bytes may be moved. A process measures durations of its own work
by its own clock.
"""

import time

from sqlalchemy import ColumnElement, Double, cast, extract, func, literal, select
from sqlalchemy.ext.asyncio import AsyncConnection

__all__ = ["clock", "read_clock"]


def clock(connection: AsyncConnection) -> ColumnElement[float]:
    """Return an SQL expression for the time at which the statement runs, in seconds since the epoch.

    All processes that use one SQLite file run on one host, so SQLite uses that host's time.
    """
    if connection.dialect.name == "sqlite":
        return literal(time.time(), Double)
    return cast(extract("epoch", func.clock_timestamp()), Double)


async def read_clock(connection: AsyncConnection) -> float:
    """Read the database's time, in seconds since the epoch."""
    if connection.dialect.name == "sqlite":
        return time.time()
    return float((await connection.execute(select(clock(connection)))).scalar_one())
