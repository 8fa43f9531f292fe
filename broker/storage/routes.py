"""Measured routes in the database."""

import asyncio
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import orjson
from sqlalchemy import BigInteger, Double, Select, and_, cast, delete, func, or_, select
from sqlalchemy.ext.asyncio import AsyncConnection

from broker.models.depots import ReportedRoute, RouteDay
from broker.schema.history import ignored_subjects, route_measurements
from broker.storage.dialects import insert
from broker.storage.traffic import day_of
from coalloc.history.route_values import LEAST, LONG_SECONDS, RECENT, SMALL_FILE, MeasuredRoute
from coalloc.model import RouteUse

__all__ = ["RouteStore", "UsedRoutes"]

USE = [route_measurements.c[name] for name in RouteUse._fields]
MEANINGFUL = and_(
    route_measurements.c.beginning > 0,
    or_(route_measurements.c.beginning >= LEAST, route_measurements.c.beginning_seconds >= LONG_SECONDS),
)
"""The condition for measurements that show the time of a small file."""
SMALL_SECONDS = (
    route_measurements.c.opening_seconds
    + route_measurements.c.beginning_seconds * float(SMALL_FILE) / route_measurements.c.beginning
)
"""The seconds of a small file, as in `MeasuredRoute`."""
SLICE = 600.0
"""Seconds of a slice of time; a sample has one in n slices."""
MIXER, PRIME = 40503, 65537
"""Factor and modulus that mix the numbers of slices."""
PART = 1000
"""Rows that are processed before other coroutines may run."""


class UsedRoutes(NamedTuple):
    """The uses of routes by day.

    :param every: 1 if these are all uses; n if they are those of one in n slices of time
    """

    days: Sequence[RouteDay]
    every: int


class RouteStore:
    """Measured routes in the database."""

    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection

    async def add(self, reporter: str, site: str, routes: Sequence[ReportedRoute]) -> None:
        """Add measurements of a reporter at a site, except those that it has reported already."""
        rows = [{**each.model_dump(), "reporter": reporter, "site": site} for each in routes]
        new = insert(self._connection, route_measurements).on_conflict_do_nothing()
        await self._connection.execute(new, rows)

    async def newest(
        self, hosts: Sequence[str], reporter: str, site: str, since: float
    ) -> dict[str, list[MeasuredRoute]]:
        """Return each reporter's newest meaningful measurements of each route to hosts, in the order of their ends.

        They are those of this reporter, and of others at the same site if it is known, without ignored reporters.

        :param since: time after which they ended
        """
        one = route_measurements.c
        near = one.reporter == reporter
        if site:
            near |= one.site == site
        newest_first = func.row_number().over(
            partition_by=[one.reporter, one.scheme, one.host, one.route], order_by=[one.ended.desc(), one.id.desc()]
        )
        ranked = (
            select(one.reporter, one.scheme, one.host, one.ended, *USE, newest_first.label("place"))
            .where(one.host.in_(hosts), one.ended > since, near, MEANINGFUL)
            .where(one.reporter.not_in(select(ignored_subjects.c.subject)))
            .subquery()
        )
        found = select(ranked).where(ranked.c.place <= RECENT).order_by(ranked.c.ended)
        measured: dict[str, list[MeasuredRoute]] = {}
        for row in await self._connection.execute(found):
            use = RouteUse(*(getattr(row, name) for name in RouteUse._fields))
            measured.setdefault(row.reporter, []).append(MeasuredRoute(row.scheme, row.host, row.ended, use))
        return measured

    async def used(self, reporter: str | None, since: float, until: float, most: int) -> UsedRoutes:
        """Return the uses of routes by day, in no order; a sample of them if there are many.

        Transfers report the routes to a server with the same end, so a sample has all routes of a transfer or none.

        :param reporter: reporter of the uses; None: all, except ignored ones
        :param since: start of the period, in which the uses ended
        :param until: end of the period
        :param most: number of uses from which a sample is taken, of about this size
        """
        one = route_measurements.c
        ignored = one.reporter.not_in(select(ignored_subjects.c.subject))
        wanted = (one.ended >= since, one.ended < until, ignored if reporter is None else one.reporter == reporter)
        counted = select(func.count()).select_from(route_measurements).where(*wanted)
        count = (await self._connection.execute(counted)).scalar_one()
        every = max(1, math.ceil(count / most))
        mixed = cast(one.ended / SLICE, BigInteger) * MIXER % PRIME  # probes may come every hour or every day
        chosen = (*wanted, mixed % every == 0) if every > 1 else wanted
        days = []
        for *key, uses, moved, times in await self._connection.execute(self._by_day().where(*chosen)):
            seconds = orjson.loads(times) if isinstance(times, str) else times or ()
            days.append(RouteDay._make([*key, uses, int(moved), tuple(seconds)]))
            if len(days) % PART == 0:
                await asyncio.sleep(0)
        return UsedRoutes(days, every)

    def _by_day(self) -> Select[Any]:
        """Return the query of uses in the order of the fields of RouteDay."""
        one = route_measurements.c
        keys = (one.reporter, one.site, one.scheme, one.host, one.route, day_of(self._connection, one.ended))
        nbytes = func.sum(cast(one.bytes, Double))  # as integers, absurd reports would overflow
        gathered = func.json_group_array if self._connection.dialect.name == "sqlite" else func.array_agg
        return select(*keys, func.count(), nbytes, gathered(SMALL_SECONDS).filter(MEANINGFUL)).group_by(*keys)

    async def forget_most(self, reporter: str, most: int) -> None:
        """Remove all but about a reporter's newest `most` measurements."""
        one = route_measurements.c
        mine = select(one.ended).where(one.reporter == reporter).order_by(one.ended.desc())
        last = mine.offset(most).limit(1).scalar_subquery()
        await self._connection.execute(delete(route_measurements).where(one.reporter == reporter, one.ended <= last))

    async def forget(self, before: float) -> None:
        """Remove measurements that ended before a time."""
        await self._connection.execute(delete(route_measurements).where(route_measurements.c.ended < before))
