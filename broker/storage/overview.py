"""Queries of the overview: recent failures of transfers and tasks, and actual and best single-source durations."""

from typing import Any, NamedTuple

from sqlalchemy import literal, select
from sqlalchemy.ext.asyncio import AsyncConnection

from broker.models.history import Pair
from broker.schema.history import BADLY, observations, pairs
from broker.schema.reports import decisions
from broker.schema.tasks import FAILED, tasks

__all__ = ["FailedTransfer", "Problems", "Stopped", "beside"]

MOST_DURATIONS = 10_000


class FailedTransfer(NamedTuple):
    """A transfer that failed or delivered wrong bytes."""

    at: float
    pair: Pair
    outcome: str
    error: str | None


class Stopped(NamedTuple):
    """A task that failed."""

    at: float
    id: str
    label: str | None
    error: str | None


class Problems:
    """Queries for failures, the newest first.

    :param subject: subject whose failures are returned; None for all
    """

    def __init__(self, connection: AsyncConnection, subject: str | None) -> None:
        self._connection = connection
        self._subject = subject

    async def transfers(self, since: float, limit: int) -> list[FailedTransfer]:
        """Return failed and corrupt transfers that ended at or after `since`, newest first."""
        of = observations.c
        mine = literal(True) if self._subject is None else of.subject == self._subject
        query = (
            select(of.ended, pairs.c.source, pairs.c.sink, pairs.c.direction, of.outcome, of.error)
            .join(pairs)
            .where(BADLY, of.ended >= since, mine)
            .order_by(of.ended.desc())
            .limit(limit)
        )
        return [FailedTransfer(row[0], Pair(*row[1:4]), *row[4:]) for row in await self._connection.execute(query)]

    async def tasks(self, since: float, limit: int) -> list[Stopped]:
        """Return tasks that failed since a time, without canceled ones."""
        of = tasks.c
        mine = literal(True) if self._subject is None else of.owner == self._subject
        query = (
            select(of.completed_at, of.id, of.label, of.error)
            .where(FAILED, of.canceled.is_(None), of.completed_at >= since, mine)
            .order_by(of.completed_at.desc())
            .limit(limit)
        )
        return [Stopped(*row) for row in await self._connection.execute(query)]


async def beside(connection: AsyncConnection, subject: str | None, since: float) -> list[tuple[float, float]]:
    """Return two durations in seconds for each successful transfer since a time, the newest transfer first.

    The first is the duration from the best single source in hindsight, the second the time until the last byte arrived.
    Transfers without a known first duration are left out; at most `MOST_DURATIONS` are returned.

    :param subject: subject that made the transfers; None for all
    """
    of = decisions.c
    mine: Any = literal(True) if subject is None else of.subject == subject
    query = (
        select(of.single_seconds, of.fetch_seconds)
        .where(of.at >= since, of.outcome == "ok", of.single_seconds.is_not(None), mine)
        .order_by(of.at.desc())
        .limit(MOST_DURATIONS)
    )
    return [(single, seconds) for single, seconds in await connection.execute(query)]
