"""Measured routes in the database."""

from collections.abc import Sequence

from sqlalchemy import delete, func, select
from sqlalchemy.ext.asyncio import AsyncConnection

from broker.models.depots import ReportedRoute
from broker.schema.history import ignored_subjects, route_measurements
from broker.storage.dialects import insert
from coalloc.history.route_values import LEAST, LONG_SECONDS, RECENT, MeasuredRoute
from coalloc.model import RouteUse

__all__ = ["RouteStore"]

USE = [route_measurements.c[name] for name in RouteUse._fields]


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
            .where(one.host.in_(hosts), one.ended > since, near, one.beginning > 0)
            .where((one.beginning >= LEAST) | (one.beginning_seconds >= LONG_SECONDS))
            .where(one.reporter.not_in(select(ignored_subjects.c.subject)))
            .subquery()
        )
        found = select(ranked).where(ranked.c.place <= RECENT).order_by(ranked.c.ended)
        measured: dict[str, list[MeasuredRoute]] = {}
        for row in await self._connection.execute(found):
            use = RouteUse(*(getattr(row, name) for name in RouteUse._fields))
            measured.setdefault(row.reporter, []).append(MeasuredRoute(row.scheme, row.host, row.ended, use))
        return measured

    async def forget(self, before: float) -> None:
        """Remove measurements that ended before a time."""
        await self._connection.execute(delete(route_measurements).where(route_measurements.c.ended < before))
