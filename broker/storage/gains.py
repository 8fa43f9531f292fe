"""What transfers from several sources took, beside the best single one."""

from typing import Any

from sqlalchemy import literal, select
from sqlalchemy.ext.asyncio import AsyncConnection

from broker.schema.reports import decisions

__all__ = ["beside"]

MOST = 10_000


async def beside(connection: AsyncConnection, subject: str | None, since: float) -> list[tuple[float, float]]:
    """Of transfers since a moment, the newest first: seconds from the best single source in hindsight, and those until
    the last byte was there; at most 10,000 of those of which that is known.

    :param subject: whose; None: everybody's
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
