"""Forecasts as they were given, each stored once, when it was made."""

from collections.abc import Sequence
from typing import NamedTuple

from sqlalchemy import BigInteger, Double, Integer, String, Text, select
from sqlalchemy.ext.asyncio import AsyncConnection

from broker.schema.base import ID
from broker.schema.history import forecasts
from broker.storage.dialects import ALWAYS, insert
from broker.storage.json_rows import Columns, tabled

__all__ = ["ForecastStore", "GivenForecast"]


class GivenForecast(NamedTuple):
    """A forecast that a client received.

    It has the link, the size class, the forecaster, and the newest observation and number of observations behind it.
    """

    pair_id: int
    size_class: int
    forecaster: str
    newest_id: int
    made_at: float
    bytes: int | None
    p10: float
    p50: float
    p90: float
    setup_seconds: float | None
    observations: int
    reason: str
    leader: str


COLUMNS: Columns = {
    "pair_id": ID,
    "size_class": Integer(),
    "forecaster": String(),
    "newest_id": BigInteger(),
    "made_at": Double(),
    "bytes": BigInteger(),
    "p10": Double(),
    "p50": Double(),
    "p90": Double(),
    "setup_seconds": Double(),
    "observations": Integer(),
    "reason": Text(),
    "leader": Text(),
}


class ForecastStore:
    """Forecasts in the database."""

    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection

    async def add(self, given: Sequence[GivenForecast]) -> None:
        """Store these forecasts; one that is stored already stays as it was first given."""
        rows = tabled(self._connection, given, COLUMNS)
        fresh = select(*(rows.c[name] for name in COLUMNS)).where(ALWAYS)
        statement = insert(self._connection, forecasts).from_select(list(COLUMNS), fresh)
        await self._connection.execute(statement.on_conflict_do_nothing())
