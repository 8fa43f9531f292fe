"""Depots' reports of their legs in the database."""

from collections.abc import Sequence
from typing import NamedTuple

from sqlalchemy import ColumnElement, delete, func, insert, or_, select
from sqlalchemy.ext.asyncio import AsyncConnection

from broker.models.depots import ReportedLeg
from broker.schema.catalogue import depots
from broker.schema.history import depot_legs
from coalloc.history.route_values import RECENT

__all__ = ["LegStore", "StoredLeg"]

KEPT = 2 * RECENT
"""Number of newest reports of a leg that are kept; of a busy one there is a report every minute."""
NAMES = tuple(ReportedLeg.model_fields)


class StoredLeg(NamedTuple):
    """A report of a leg, and the name of the depot where it begins."""

    depot: str
    leg: ReportedLeg


class LegStore:
    """Reports of legs in the database."""

    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection

    async def add(self, depot_id: int, ended: float, legs: Sequence[ReportedLeg]) -> None:
        """Add the reports of a depot, which arrived at this time."""
        rows = [{**each.model_dump(), "depot_id": depot_id, "ended": ended} for each in legs]
        await self._connection.execute(insert(depot_legs), rows)

    async def newest(self, since: float) -> list[StoredLeg]:
        """Return the newest reports of each leg of all depots, the newest first.

        :param since: time after which they arrived
        """
        ranked = select(depot_legs, _place().label("place")).where(depot_legs.c.ended > since).subquery()
        found = (
            select(depots.c.name, *(ranked.c[name] for name in NAMES))
            .join(depots, depots.c.id == ranked.c.depot_id)
            .where(ranked.c.place <= RECENT)
            .order_by(ranked.c.ended.desc(), ranked.c.id.desc())
        )
        return [
            StoredLeg(row.name, ReportedLeg.model_construct(**{name: getattr(row, name) for name in NAMES}))
            for row in await self._connection.execute(found)
        ]

    async def recent(self, depot_id: int, tried: float, connected: float) -> set[tuple[str, int]]:
        """Return host and port of the next hops that a depot has connected, or tried to connect, recently.

        :param tried: time after which connections failed
        :param connected: time after which some were made
        """
        one = depot_legs.c
        lately = or_((one.ended > tried) & (one.failures > 0), (one.ended > connected) & (one.sessions > 0))
        found = select(one.host, one.port).where(one.depot_id == depot_id, lately).distinct()
        return {(host, port) for host, port in await self._connection.execute(found)}

    async def forget(self, depot_id: int, before: float) -> None:
        """Remove all reports that arrived before a time, and of a depot's legs all but the newest ones."""
        ranked = select(depot_legs.c.id, _place().label("place")).where(depot_legs.c.depot_id == depot_id).subquery()
        surplus = select(ranked.c.id).where(ranked.c.place > KEPT)
        old = or_(depot_legs.c.ended < before, depot_legs.c.id.in_(surplus))
        await self._connection.execute(delete(depot_legs).where(old))


def _place() -> ColumnElement[int]:
    """Return the place of each report among those of its leg; the newest has the place 1."""
    one = depot_legs.c
    return func.row_number().over(
        partition_by=[one.depot_id, one.host, one.port], order_by=[one.ended.desc(), one.id.desc()]
    )
