"""Measured routes in the database."""

from collections.abc import Sequence

from sqlalchemy import delete, func, select
from sqlalchemy.ext.asyncio import AsyncConnection

from broker.models.depots import ReportedRoute
from broker.schema.history import ignored_subjects, route_measurements
from broker.storage.dialects import insert
from coalloc.depot.measured import LEAST, RECENT, MeasuredRoute
from coalloc.model import RouteUse

__all__ = ["RouteStore"]

USE = [route_measurements.c[name] for name in RouteUse._fields]


class RouteStore:
    """Measured routes in the database."""

    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection

    async def add(self, reporter: str, site: str, routes: Sequence[ReportedRoute]) -> None:
        """Add measurements of a reporter at a site."""
        rows = [{**each.model_dump(), "reporter": reporter, "site": site} for each in routes]
        await self._connection.execute(insert(self._connection, route_measurements), rows)

    async def newest(self, hosts: Sequence[str], reporter: str, site: str, since: float) -> list[MeasuredRoute]:
        """Return the newest meaningful measurements of each route to hosts, in the order of their ends.

        They are those of the reporter, and of others at the same site if it is known, without ignored reporters.

        :param since: time after which they ended
        """
        one = route_measurements.c
        near = one.reporter == reporter
        if site:
            near |= one.site == site
        newest_first = func.row_number().over(
            partition_by=[one.scheme, one.host, one.route], order_by=[one.ended.desc(), one.id.desc()]
        )
        ranked = (
            select(one.scheme, one.host, one.ended, *USE, newest_first.label("place"))
            .where(one.host.in_(hosts), one.ended > since, one.beginning >= LEAST, near)
            .where(one.reporter.not_in(select(ignored_subjects.c.subject)))
            .subquery()
        )
        found = select(ranked).where(ranked.c.place <= RECENT).order_by(ranked.c.ended)
        return [
            MeasuredRoute(row.scheme, row.host, row.ended, RouteUse(*(getattr(row, name) for name in RouteUse._fields)))
            for row in await self._connection.execute(found)
        ]

    async def forget(self, before: float) -> None:
        """Remove measurements that ended before a time."""
        await self._connection.execute(delete(route_measurements).where(route_measurements.c.ended < before))
