"""Measured routes in the database."""

import asyncio
import hashlib
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import orjson
from sqlalchemy import BigInteger, Double, Select, Text, and_, cast, delete, func, or_, select
from sqlalchemy.ext.asyncio import AsyncConnection

from broker.models.depots import ReportedRoute, RouteDay
from broker.schema.history import ignored_subjects, route_measurements
from broker.storage.dialects import insert, tabled
from broker.storage.traffic import day_of
from coalloc.history.route_values import LEAST, LONG_SECONDS, RECENT, SMALL_FILE, MeasuredRoute
from coalloc.model.routes import DIRECTLY, RouteUse

__all__ = ["RouteGroup", "RouteStore", "UsedRoutes", "sampled"]

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
DAY = 86_400.0
PART = 1000
"""Rows that are processed before other coroutines may run."""


class UsedRoutes(NamedTuple):
    """The uses of routes by day, all of them or a sample.

    :param total: number of all uses; greater than that of these if they are a sample
    """

    days: Sequence[RouteDay]
    total: int

    @property
    def uses(self) -> int:
        """Return the number of these uses."""
        return sum(each.uses for each in self.days)


class RouteGroup(NamedTuple):
    """All uses of routes by a reporter to a server: a sample has them all, or none."""

    reporter: str
    scheme: str
    host: str
    uses: int


def sampled(groups: Iterable[RouteGroup], most: int) -> list[RouteGroup]:
    """Return groups with at most `most` uses, of each reporter as many as its fair share permits.

    So a reporter with very many uses takes nothing from the others. The choice among a reporter's groups depends only
    on the names of their servers, so it is the same in each report.
    """
    by_reporter: defaultdict[str, list[RouteGroup]] = defaultdict(list)
    for each in sorted(groups, key=_mixed):
        by_reporter[each.reporter].append(each)
    share = _fair_share([sum(each.uses for each in some) for some in by_reporter.values()], most)
    kept: list[RouteGroup] = []
    for some in by_reporter.values():
        left = share
        for each in some:
            if each.uses <= left:
                kept.append(each)
                left -= each.uses
    lacking = by_reporter.keys() - {each.reporter for each in kept}
    left = most - sum(each.uses for each in kept)
    for each in sorted((min(by_reporter[name], key=_size) for name in lacking), key=_size):
        if each.uses <= left:
            kept.append(each)
            left -= each.uses
    return kept


def _size(group: RouteGroup) -> tuple[int, str]:
    return group.uses, group.reporter


def _mixed(group: RouteGroup) -> bytes:
    return hashlib.blake2b(repr(group[:3]).encode(), digest_size=8).digest()


def _fair_share(totals: Sequence[int], most: int) -> int:
    """Return the limit for each reporter at which all together have at most `most` uses."""
    left = most
    for place, total in enumerate(sorted(totals)):
        share = left // (len(totals) - place)
        if total > share:
            return share
        left -= total
    return most


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

        A sample has all uses of a server by a reporter or none, so each of its pairs has all its days.

        :param reporter: reporter of the uses; None for all, except ignored ones
        :param since: start of the period, in which the uses ended
        :param until: end of the period
        :param most: maximum number of uses
        """
        one = route_measurements.c
        ignored = one.reporter.not_in(select(ignored_subjects.c.subject))
        wanted = (one.ended >= since, one.ended < until, ignored if reporter is None else one.reporter == reporter)
        counted = select(func.count()).select_from(route_measurements).where(*wanted)
        total = (await self._connection.execute(counted)).scalar_one()
        query = self._by_day().where(*wanted)
        if total > most:
            keys = (one.reporter, one.scheme, one.host)
            rows = await self._connection.execute(select(*keys, func.count()).where(*wanted).group_by(*keys))
            chosen = await asyncio.to_thread(sampled, map(RouteGroup._make, rows.all()), most)
            given = tabled(self._connection, chosen, {"reporter": Text(), "scheme": Text(), "host": Text()})
            query = query.join(given, and_(*(key == given.c[key.name] for key in keys)))
        days = []
        for *key, uses, moved, times in await self._connection.execute(query):
            seconds = orjson.loads(times) if isinstance(times, str) else times or ()
            days.append(RouteDay._make([*key, uses, int(moved), tuple(seconds)]))
            if len(days) % PART == 0:
                await asyncio.sleep(0)
        return UsedRoutes(days, total)

    async def oldest(self, reporters: Collection[str]) -> dict[str, float]:
        """Return the end of each reporter's oldest stored measurement, of any route."""
        one = route_measurements.c
        given = tabled(self._connection, [(each,) for each in reporters], {"reporter": Text()})
        first = select(func.min(one.ended)).where(one.reporter == given.c.reporter).scalar_subquery()
        rows = await self._connection.execute(select(given.c.reporter, first))
        return {reporter: ended for reporter, ended in rows if ended is not None}

    async def over_depots(
        self, servers: Collection[tuple[str, str]], starts: Mapping[str, int], until: float
    ) -> dict[tuple[str, str], int]:
        """Return the bytes that reporters measured over depots, by site and server.

        :param servers: sites, each with the source name of a server without a port
        :param starts: first day of each reporter
        :param until: time before which the uses ended
        """
        one = route_measurements.c
        given = tabled(self._connection, list(servers), {"site": Text(), "server": Text()})
        known = tabled(self._connection, list(starts.items()), {"reporter": Text(), "day": BigInteger()}, "starts")
        query = (
            select(given.c.site, given.c.server, func.sum(cast(one.bytes, Double)))
            .join(given, and_(given.c.site == one.site, given.c.server == one.scheme + "://" + one.host))
            .join(known, and_(known.c.reporter == one.reporter, one.ended >= known.c.day * DAY))
            .where(one.host.in_({server.partition("://")[2] for _, server in servers}))
            .where(one.ended < until, one.route != DIRECTLY)
            .group_by(given.c.site, given.c.server)
        )
        return {(site, server): int(nbytes) for site, server, nbytes in await self._connection.execute(query)}

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
