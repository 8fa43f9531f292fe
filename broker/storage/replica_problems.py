"""Queries for replicas that are not available, and for failed transfers by server address."""

from collections.abc import Mapping
from typing import NamedTuple

from sqlalchemy import ColumnElement, Double, cast, func, literal, select, text
from sqlalchemy.ext.asyncio import AsyncConnection

from broker.models.names import Parts
from broker.schema.catalogue import datasets, endpoints, replicas
from broker.schema.history import BADLY, observations, pairs
from broker.schema.reports import traffic
from broker.storage.traffic import DAY

__all__ = ["AddressFailures", "Suspect", "Suspects"]

WANTING = text("state <> 'AVAILABLE'")


class Suspect(NamedTuple):
    """A replica that is not AVAILABLE, with its state, the time of the last change, and the reason."""

    dataset: str
    endpoint: str
    state: str
    changed_at: float
    reason: str


class AddressFailures(NamedTuple):
    """Failed transfers of one server address: their number, the number of corrupt ones, and the last failure."""

    source: str
    badly: int
    corrupt: int
    last_at: float
    error: str | None


class Suspects:
    """Queries for replicas and addresses with problems.

    :param subject: subject whose transfers count; None for all
    """

    def __init__(self, connection: AsyncConnection, subject: str | None) -> None:
        self._connection = connection
        self._subject = subject

    async def counts(self) -> Mapping[str, int]:
        """Return the number of replicas in each state except AVAILABLE."""
        query = select(replicas.c.state, func.count()).where(WANTING).group_by(replicas.c.state)
        return {row[0]: row[1] for row in await self._connection.execute(query)}

    async def replicas(self, state: str | None, limit: int) -> list[Suspect]:
        """Return replicas in a state, or in any state except AVAILABLE, the last changed first."""
        of = replicas.c
        these = literal(True) if state is None else of.state == state
        newest = (
            select(of.dataset_id, of.endpoint_id, of.state, of.changed_at, of.reason)
            .where(WANTING, these)
            .order_by(of.changed_at.desc(), of.dataset_id, of.endpoint_id)
            .limit(limit)
            .subquery("newest")
        )
        named = (
            select(datasets.c.scope, datasets.c.name, endpoints.c.name, newest)
            .select_from(newest)
            .join(datasets, datasets.c.id == newest.c.dataset_id)
            .join(endpoints, endpoints.c.id == newest.c.endpoint_id)
            .order_by(newest.c.changed_at.desc(), newest.c.dataset_id, newest.c.endpoint_id)
        )
        rows = await self._connection.execute(named)
        return [Suspect(str(Parts(row[0], row[1])), row[2], row.state, row.changed_at, row.reason) for row in rows]

    async def troubles(self, since: float) -> list[AddressFailures]:
        """Return the server addresses with failed transfers since a time."""
        of = observations.c
        corrupt = func.count().filter(of.outcome == "corrupt")
        grouped = (
            select(
                pairs.c.source,
                func.count().label("badly"),
                corrupt.label("corrupt"),
                func.max(of.ended).label("last_at"),
                func.max(of.id).label("last"),
            )
            .join(pairs)
            .where(BADLY, of.ended >= since, self._mine(of.subject))
            .group_by(pairs.c.source)
            .subquery("grouped")
        )
        query = select(grouped, of.error).join(observations, of.id == grouped.c.last).order_by(grouped.c.source)
        rows = await self._connection.execute(query)
        return [AddressFailures(row.source, row.badly, row.corrupt, row.last_at, row.error) for row in rows]

    async def transfers(self, since: float) -> Mapping[str, int]:
        """Return the number of transfers of each server address since the start of a day."""
        query = (
            select(pairs.c.source, func.sum(cast(traffic.c.transfers, Double)))
            .join(pairs)
            .where(traffic.c.day >= int(since // DAY), self._mine(traffic.c.subject))
            .group_by(pairs.c.source)
        )
        return {source: int(number) for source, number in await self._connection.execute(query)}

    def _mine(self, subject: ColumnElement[str]) -> ColumnElement[bool]:
        return literal(True) if self._subject is None else subject == self._subject
