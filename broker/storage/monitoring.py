"""Queries of the state of a running broker, whose cost does not depend on the amount of data."""

from typing import NamedTuple

from sqlalchemy import ColumnElement, and_, case, func, select
from sqlalchemy.ext.asyncio import AsyncConnection

from broker.schema.history import observations, pairs
from broker.schema.reports import traffic
from broker.schema.tasks import tasks, workers
from broker.storage.dialects import clock

__all__ = ["Backlog", "DayTotals", "MonitoringQueries"]

MOST = 100_000
"""Most observations that are counted one by one."""
STATE = case((tasks.c.paused.is_not(None), "paused"), (tasks.c.started_at.is_(None), "queued"), else_="active")


class DayTotals(NamedTuple):
    """Totals of the transfers over a link that ended on one day."""

    day: int
    source: str
    sink: str
    transfers: int
    failures: int
    bytes: int


class Backlog(NamedTuple):
    """The numbers of observations that are not yet in the sums of traffic, and not yet scored."""

    traffic: int
    scores: int


class MonitoringQueries:
    """Queries for measurements."""

    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection

    async def moved(self, since: int) -> list[DayTotals]:
        """Return the daily totals since a day, sorted by day and number of the link."""
        sums = [func.sum(traffic.c[name]) for name in ("transfers", "failures", "bytes")]
        of = (traffic.c.day, pairs.c.id, pairs.c.source, pairs.c.sink)
        query = select(*of, *sums).join(pairs).where(traffic.c.day >= since).group_by(*of).order_by(*of[:2])
        rows = await self._connection.execute(query)
        return [DayTotals(day, source, sink, *map(int, counts)) for day, _, source, sink, *counts in rows]

    async def tasks(self) -> dict[str, int]:
        """Return the numbers of running (`active`), not yet started (`queued`) and `paused` tasks."""
        query = select(STATE, func.count()).where(tasks.c.status == "ACTIVE").group_by(STATE)
        return {row[0]: row[1] for row in await self._connection.execute(query)}

    async def workers(self, seconds: float) -> int:
        """Return the number of workers seen in the last `seconds`."""
        since = clock(self._connection) - seconds
        seen = select(func.count()).select_from(workers).where(workers.c.seen_at >= since)
        return int((await self._connection.execute(seen)).scalar_one())

    async def waiting(self) -> Backlog:
        """Return the numbers of waiting observations, each at most `MOST`."""
        return Backlog(await self._after(pairs.c.rolled_id), await self._after(pairs.c.scored_id))

    async def _after(self, done: ColumnElement[int]) -> int:
        newer = and_(observations.c.pair_id == pairs.c.id, observations.c.id > done)
        some = select(observations.c.id).select_from(pairs).join(observations, newer).where(pairs.c.newest_id > done)
        count = select(func.count()).select_from(some.limit(MOST).subquery())
        return int((await self._connection.execute(count)).scalar_one())
