"""Queries of the sums of traffic by day, link and size class."""

from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from sqlalchemy import BigInteger, ColumnElement, Double, Text, and_, cast, func, literal, or_, select
from sqlalchemy.ext.asyncio import AsyncConnection

from broker.models.history import Pair
from broker.schema.base import ID
from broker.schema.history import pairs
from broker.schema.reports import traffic
from broker.storage.dialects import tabled

__all__ = ["Day", "LinkCounts", "LinkTotals", "SumStore", "named"]

MOVED = [func.sum(cast(traffic.c[name], Double)) for name in ("transfers", "failures", "bytes")]
"""Sums as floats, since they may exceed the range of integers."""


class Day(NamedTuple):
    """A day (days since the epoch) with the numbers of its transfers and failures, and the transferred bytes."""

    day: int
    transfers: int
    failures: int
    bytes: int


class LinkCounts(NamedTuple):
    """A link, with the numbers of its transfers and failures."""

    pair: Pair
    transfers: int
    failures: int


class LinkTotals(NamedTuple):
    """A link's totals for one size class; `newest_end` is the end of the newest transfer, or 0 if not queried."""

    pair_id: int
    pair: Pair
    size_class: int
    transfers: int
    failures: int
    bytes: int
    newest_end: float


class SumStore:
    """Queries of the sums.

    :param subject: subject that made the transfers; None for all
    """

    def __init__(self, connection: AsyncConnection, subject: str | None) -> None:
        self._connection = connection
        self._subject = subject

    async def days(self, since: int) -> list[Day]:
        """Return the sums of each day from `since` on; days without transfers are left out."""
        query = select(traffic.c.day, *MOVED).where(self._mine(since)).group_by(traffic.c.day).order_by(traffic.c.day)
        return [Day(day, *map(int, sums)) for day, *sums in await self._connection.execute(query)]

    async def worst(self, since: int, fewest: int, limit: int) -> list[LinkCounts]:
        """Return the links with the greatest share of failures since a day, and at least `fewest` transfers."""
        transfers, failures, _ = MOVED
        share = failures / transfers
        query = (
            select(traffic.c.pair_id, transfers.label("transfers"), failures.label("failures"), share.label("share"))
            .where(self._mine(since))
            .group_by(traffic.c.pair_id)
            .having(transfers >= fewest, failures > 0)
            .order_by(share.desc(), traffic.c.pair_id)
            .limit(limit)
            .subquery("worst")
        )
        called = select(pairs.c.source, pairs.c.sink, pairs.c.direction, query.c.transfers, query.c.failures)
        called = called.join(query, query.c.pair_id == pairs.c.id).order_by(query.c.share.desc(), pairs.c.id)
        rows = await self._connection.execute(called)
        return [LinkCounts(Pair(*row[:3]), int(row.transfers), int(row.failures)) for row in rows]

    async def newest_day(self) -> int | None:
        """Return the newest day on which a transfer ended; None without transfers."""
        newest: int | None = (
            await self._connection.execute(select(func.max(traffic.c.day)).where(self._mine(0)))
        ).scalar()
        return newest

    async def cells(self, since: int) -> list[LinkTotals]:
        """Return the totals of all links and size classes since a day."""
        of = (traffic.c.pair_id, traffic.c.size_class)
        query = select(*of, *MOVED, func.max(traffic.c.newest_end)).where(self._mine(since)).group_by(*of)
        rows = (await self._connection.execute(query)).all()
        known = await named(self._connection, {row.pair_id for row in rows})
        return [
            LinkTotals(pair_id, known[pair_id], size_class, int(transfers), int(failures), int(nbytes), newest_end)
            for pair_id, size_class, transfers, failures, nbytes, newest_end in (tuple(row) for row in rows)
        ]

    async def quiet(self, since: int, direction: str, size_class: int, limit: int) -> list[LinkTotals]:
        """Return links with transfers of a size class, but none since a day; the most recently used ones first."""
        own: Any = literal(True) if self._subject is None else traffic.c.subject == self._subject
        of_class = (traffic.c.pair_id == pairs.c.id, traffic.c.size_class == size_class, own)
        used = select(traffic.c.day).where(*of_class)
        query = (
            select(pairs.c.id, pairs.c.source, pairs.c.sink, pairs.c.direction)
            .where(pairs.c.direction == direction, used.exists(), ~used.where(traffic.c.day >= since).exists())
            .order_by(pairs.c.newest_end.desc(), pairs.c.id)
            .limit(limit)
        )
        rows = await self._connection.execute(query)
        return [LinkTotals(number, Pair(*names), size_class, 0, 0, 0, 0.0) for number, *names in rows]

    async def read_from(
        self, servers: Collection[tuple[str, str]], starts: Mapping[str, int], until: int
    ) -> dict[tuple[str, str], tuple[int, int]]:
        """Return the numbers of transfers, and of bytes, that sinks read from servers, at any of their ports.

        :param servers: sinks, each with the source name of a server without a port; those without transfers are left
            out of the result
        :param starts: subjects that made the transfers, with the first day of each
        :param until: day after the last one
        """
        given = tabled(self._connection, list(servers), {"sink": Text(), "server": Text()})
        known = tabled(self._connection, list(starts.items()), {"subject": Text(), "day": BigInteger()}, "starts")
        beginning = func.substr(pairs.c.source, 1, func.length(given.c.server) + 1)
        query = (
            select(given.c.sink, given.c.server, MOVED[0], MOVED[2])
            .join(pairs, and_(pairs.c.sink == given.c.sink, pairs.c.direction == "read"))
            .join(traffic, traffic.c.pair_id == pairs.c.id)
            .join(known, and_(known.c.subject == traffic.c.subject, traffic.c.day >= known.c.day))
            .where(or_(pairs.c.source == given.c.server, beginning == given.c.server + ":"))
            .where(self._mine(0), traffic.c.day < until)
            .group_by(given.c.sink, given.c.server)
        )
        rows = await self._connection.execute(query)
        return {(sink, server): (int(transfers), int(nbytes)) for sink, server, transfers, nbytes in rows}

    def _mine(self, since: int) -> ColumnElement[bool]:
        by_subject: Any = literal(True) if self._subject is None else traffic.c.subject == self._subject
        return and_(traffic.c.day >= since, by_subject)


async def named(connection: AsyncConnection, numbers: Collection[int]) -> dict[int, Pair]:
    """Return the links with these numbers, by number."""
    given = tabled(connection, [(number,) for number in numbers], {"id": ID})
    query = select(pairs.c.id, pairs.c.source, pairs.c.sink, pairs.c.direction).join(given, given.c.id == pairs.c.id)
    return {number: Pair(*names) for number, *names in await connection.execute(query)}
