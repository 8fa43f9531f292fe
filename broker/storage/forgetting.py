"""What was made of transfers is forgotten with them."""

from sqlalchemy import delete
from sqlalchemy.ext.asyncio import AsyncConnection

from broker.schema.reports import accuracy, decisions, regrets, scores, traffic
from broker.storage.traffic import DAY

__all__ = ["forget"]

WEEK = 7 * DAY


async def forget(connection: AsyncConnection, before: float) -> None:
    """Forget what is of days and weeks that were over by then, at the beginning of a day."""
    for old in (
        traffic.c.day < int(before // DAY),
        scores.c.ended < before,
        accuracy.c.week < int(before // WEEK),
        decisions.c.at < before,
        regrets.c.week < int(before // WEEK),
        regrets.c.week < int(before // WEEK),
    ):
        await connection.execute(delete(old.left.table).where(old))
