"""What was moved, by days, ways and classes of sizes: from the sums that are kept of it."""

from collections.abc import Collection
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Double, and_, cast, func, literal, select
from sqlalchemy.ext.asyncio import AsyncConnection

from broker.models.history import Pair
from broker.schema.base import ID
from broker.schema.history import pairs
from broker.schema.reports import traffic
from broker.storage.tabled import tabled

__all__ = ["Cell", "Day", "Sums", "Way"]

MOVED = [func.sum(cast(traffic.c[name], Double)) for name in ("transfers", "failures", "bytes")]
"""As floats: sums of sums have no bound."""


class Day(NamedTuple):
    """A day since the epoch: how many transfers ended on it, how many of them badly, and what they moved."""

    day: int
    transfers: int
    failures: int
    bytes: int


class Way(NamedTuple):
    """A pair: how many transfers went over it, and how many of them ended badly."""

    pair: Pair
    transfers: int
    failures: int


class Cell(NamedTuple):
    """Of a pair what is of a class of sizes; `newest_end` is when the newest of it ended, as far as that was asked."""

    pair_id: int
    pair: Pair
    size_class: int
    transfers: int
    failures: int
    bytes: int
    newest_end: float


class Sums:
    """The sums.

    :param subject: whose transfers they are of; None: everybody's
    """

    def __init__(self, connection: AsyncConnection, subject: str | None) -> None:
        self._connection = connection
        self._subject = subject

    async def days(self, since: int) -> list[Day]:
        """The days since one, in their order; those on which nothing ended are left out."""
        asked = select(traffic.c.day, *MOVED).where(self._mine(since)).group_by(traffic.c.day).order_by(traffic.c.day)
        return [Day(day, *map(int, sums)) for day, *sums in await self._connection.execute(asked)]

    async def worst(self, since: int, fewest: int, limit: int) -> list[Way]:
        """Pairs of which the greatest share ended badly since a day, of those with so many transfers at least."""
        transfers, failures, _ = MOVED
        share = failures / transfers
        asked = (
            select(traffic.c.pair_id, transfers.label("transfers"), failures.label("failures"), share.label("share"))
            .where(self._mine(since))
            .group_by(traffic.c.pair_id)
            .having(transfers >= fewest, failures > 0)
            .order_by(share.desc(), traffic.c.pair_id)
            .limit(limit)
            .subquery("worst")
        )
        named = select(pairs.c.source, pairs.c.sink, pairs.c.direction, asked.c.transfers, asked.c.failures)
        named = named.join(asked, asked.c.pair_id == pairs.c.id).order_by(asked.c.share.desc(), pairs.c.id)
        rows = await self._connection.execute(named)
        return [Way(Pair(*row[:3]), int(row.transfers), int(row.failures)) for row in rows]

    async def newest_day(self) -> int | None:
        """The newest on which anything ended."""
        newest: int | None = (
            await self._connection.execute(select(func.max(traffic.c.day)).where(self._mine(0)))
        ).scalar()
        return newest

    async def cells(self, since: int) -> list[Cell]:
        """All pairs and classes since a day."""
        of = (traffic.c.pair_id, traffic.c.size_class)
        asked = select(*of, *MOVED, func.max(traffic.c.newest_end)).where(self._mine(since)).group_by(*of)
        rows = (await self._connection.execute(asked)).all()
        named = await self._named({row.pair_id for row in rows})
        return [
            Cell(pair_id, named[pair_id], size_class, int(transfers), int(failures), int(nbytes), newest_end)
            for pair_id, size_class, transfers, failures, nbytes, newest_end in (tuple(row) for row in rows)
        ]

    async def quiet(self, since: int, direction: str, size_class: int, limit: int) -> list[Cell]:
        """Pairs over which transfers of a class went, but none did since a day; those that were used last first."""
        own: Any = literal(True) if self._subject is None else traffic.c.subject == self._subject
        of_class = (traffic.c.pair_id == pairs.c.id, traffic.c.size_class == size_class, own)
        used = select(traffic.c.day).where(*of_class)
        asked = (
            select(pairs.c.id, pairs.c.source, pairs.c.sink, pairs.c.direction)
            .where(pairs.c.direction == direction, used.exists(), ~used.where(traffic.c.day >= since).exists())
            .order_by(pairs.c.newest_end.desc(), pairs.c.id)
            .limit(limit)
        )
        rows = await self._connection.execute(asked)
        return [Cell(number, Pair(*names), size_class, 0, 0, 0, 0.0) for number, *names in rows]

    async def _named(self, numbers: Collection[int]) -> dict[int, Pair]:
        given = tabled(self._connection, [(number,) for number in numbers], {"id": ID})
        asked = select(pairs.c.id, pairs.c.source, pairs.c.sink, pairs.c.direction).join(
            given, given.c.id == pairs.c.id
        )
        return {number: Pair(*names) for number, *names in await self._connection.execute(asked)}

    def _mine(self, since: int) -> ColumnElement[bool]:
        whose: Any = literal(True) if self._subject is None else traffic.c.subject == self._subject
        return and_(traffic.c.day >= since, whose)
