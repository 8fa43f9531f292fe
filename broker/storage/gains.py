"""Durations of transfers from several sources, compared with the best single source."""

from typing import Any

from sqlalchemy import literal, select
from sqlalchemy.ext.asyncio import AsyncConnection

from broker.schema.reports import decisions

__all__ = ["beside"]

MOST = 10_000


async def beside(connection: AsyncConnection, subject: str | None, since: float) -> list[tuple[float, float]]:
    """Return, for each successful transfer since a moment, two durations in seconds, the newest transfer first.

    The first is that from the best single source in hindsight, the second that until the last byte arrived. Transfers
    without a known single-source duration are left out; at most 10,000 are returned.

    :param subject: subject that made the transfers; None: all
    """
    of = decisions.c
    mine: Any = literal(True) if subject is None else of.subject == subject
    asked = (
        select(of.single_seconds, of.fetch_seconds)
        .where(of.at >= since, of.outcome == "ok", of.single_seconds.is_not(None), mine)
        .order_by(of.at.desc())
        .limit(MOST)
    )
    return [(single, seconds) for single, seconds in await connection.execute(asked)]
