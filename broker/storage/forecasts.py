"""Forecasts that callers got, each stored once, and queries of forecast errors, from the scores of transfers."""

from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

from sqlalchemy import BigInteger, Double, Integer, String, Text, func, literal, select
from sqlalchemy.ext.asyncio import AsyncConnection

from broker.models.history import Pair
from broker.schema.base import ID
from broker.schema.history import forecasts, pairs
from broker.schema.reports import scores
from broker.storage.dialects import ALWAYS, Columns, insert, tabled
from broker.storage.traffic import day_of
from predictors.observation import Rates

__all__ = ["Daily", "ForecastStore", "GivenForecast", "Missed", "Misses", "NewestForecast"]

ERROR = func.abs(func.ln(scores.c.p50 / scores.c.rate))
"""The error of a forecast, |log(forecast / actual)|, which is the same for twice and half the actual rate."""


class GivenForecast(NamedTuple):
    """A forecast that a caller got, with the newest and the number of the observations behind it."""

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
        """Store forecasts; those stored before are unchanged."""
        rows = tabled(self._connection, given, COLUMNS)
        fresh = select(*(rows.c[name] for name in COLUMNS)).where(ALWAYS)
        statement = insert(self._connection, forecasts).from_select(list(COLUMNS), fresh)
        await self._connection.execute(statement.on_conflict_do_nothing())


class Missed(NamedTuple):
    """A link, its number of transfers with forecasts, and the mean of |log(forecast / actual)|."""

    pair: Pair
    transfers: int
    error: float


class Daily(NamedTuple):
    """A link, a day (days since the epoch), and the values of `Missed` for the transfers that ended on that day."""

    pair_id: int
    day: int
    transfers: int
    error: float


class NewestForecast(NamedTuple):
    """The forecast for the newest transfer of a link and size class, and the end of that transfer."""

    pair_id: int
    ended: float
    rates: Rates


class Misses:
    """Queries of the scores.

    :param subject: subject that made the transfers; None for all
    """

    def __init__(self, connection: AsyncConnection, subject: str | None) -> None:
        self._connection = connection
        self._mine: Any = literal(True) if subject is None else scores.c.subject == subject

    async def worst(self, since: float, fewest: int, limit: int) -> list[Missed]:
        """Return the links with the worst forecasts since a moment, among those with at least `fewest` transfers."""
        query = (
            select(scores.c.pair_id, func.count().label("transfers"), func.avg(ERROR).label("error"))
            .where(scores.c.ended >= since, self._mine)
            .group_by(scores.c.pair_id)
            .having(func.count() >= fewest)
            .order_by(func.avg(ERROR).desc(), scores.c.pair_id)
            .limit(limit)
            .subquery("worst")
        )
        named = select(pairs.c.source, pairs.c.sink, pairs.c.direction, query.c.transfers, query.c.error)
        named = named.join(query, query.c.pair_id == pairs.c.id).order_by(query.c.error.desc(), pairs.c.id)
        return [Missed(Pair(*row[:3]), row[3], row[4]) for row in await self._connection.execute(named)]

    async def daily(self, since: float, until: float) -> list[Daily]:
        """Return the errors of all links for each day of a period."""
        day = day_of(self._connection, scores.c.ended).label("day")
        each = (
            select(scores.c.pair_id, day, ERROR.label("error"))
            .where(scores.c.ended >= since, scores.c.ended < until, self._mine)
            .subquery("each")
        )
        of = (each.c.pair_id, each.c.day)
        query = select(*of, func.count(), func.avg(each.c.error)).group_by(*of).order_by(*of)
        return [Daily(*row) for row in await self._connection.execute(query)]

    async def newest(self, numbers: Collection[int], size_class: int) -> dict[int, NewestForecast]:
        """Return the newest forecast of a size class for each link that has one."""
        given = tabled(self._connection, [(number,) for number in numbers], {"id": ID})
        last = (
            select(scores.c.observation_id)
            .where(scores.c.pair_id == given.c.id, scores.c.size_class == size_class, self._mine)
            .order_by(scores.c.ended.desc())
            .limit(1)
            .scalar_subquery()
        )
        found = select(given.c.id.label("pair_id"), last.label("id")).subquery("found")
        of = scores.c
        query = select(of.pair_id, of.ended, of.p10, of.p50, of.p90).join(found, found.c.id == of.observation_id)
        rows = await self._connection.execute(query)
        return {row.pair_id: NewestForecast(row.pair_id, row.ended, Rates(*row[2:])) for row in rows}
