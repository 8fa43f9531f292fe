"""Deletion of what was derived from old transfers."""

from sqlalchemy import delete
from sqlalchemy.ext.asyncio import AsyncConnection

from broker.schema.reports import accuracy, decisions, regrets, scores, traffic
from broker.storage.traffic import DAY

__all__ = ["forget"]

WEEK = 7 * DAY


async def forget(connection: AsyncConnection, before: float) -> None:
    """Delete the sums, scores and decisions of days and weeks before a moment, which is the beginning of a day."""
    for old in (
        traffic.c.day < int(before // DAY),
        scores.c.ended < before,
        accuracy.c.week < int(before // WEEK),
        decisions.c.at < before,
        regrets.c.week < int(before // WEEK),
    ):
        await connection.execute(delete(old.left.table).where(old))
