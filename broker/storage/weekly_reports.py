"""Marks for weekly reports that were posted or are being posted, so that only one process posts each.

A mark is a key in the history under a subject of its own, so that it expires with the rest of the history. The end of
the mark is the time until which no other process may take the week.
"""

from sqlalchemy import update
from sqlalchemy.ext.asyncio import AsyncConnection

from broker.schema.history import observation_keys
from broker.storage.dialects import insert

__all__ = ["Posted"]

MARKS = "broker.reports"
"""The subject under which marks are stored; no caller has this name."""


class Posted:
    """Marks of weeks."""

    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection

    async def take(self, week: str, now: float, until: float) -> bool:
        """Claim a week until a moment; return false while another process has claimed it or has marked it as done."""
        mark = {"subject": MARKS, "key": week, "ended": until}
        taken = insert(self._connection, observation_keys).values(mark)
        taken = taken.on_conflict_do_update(
            index_elements=["subject", "key"], set_={"ended": until}, where=observation_keys.c.ended <= now
        )
        return (await self._connection.execute(taken.returning(observation_keys.c.key))).first() is not None

    async def keep(self, week: str, until: float) -> None:
        """Keep others from claiming a week until a moment: it is done, or may be tried again after that."""
        mine = (observation_keys.c.subject == MARKS, observation_keys.c.key == week)
        await self._connection.execute(update(observation_keys).where(*mine).values(ended=until))
