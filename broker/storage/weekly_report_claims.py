"""Claims of processes to post weekly reports, so that only one process posts each.

A claim is a row of the table of observation keys, under a subject of its own, and is deleted with old keys. Its `ended`
is the time until which no other process may claim the week.
"""

from sqlalchemy import update
from sqlalchemy.ext.asyncio import AsyncConnection

from broker.schema.history import observation_keys
from broker.storage.dialects import insert

__all__ = ["Posted"]

MARKS = "broker.reports"
"""The subject of claims, which is reserved for the broker."""


class Posted:
    """Claims to post weekly reports, in the database."""

    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection

    async def take(self, week: str, now: float, until: float) -> bool:
        """Claim a week until a time; return False if the week is claimed or posted already."""
        mark = {"subject": MARKS, "key": week, "ended": until}
        taken = insert(self._connection, observation_keys).values(mark)
        taken = taken.on_conflict_do_update(
            index_elements=["subject", "key"], set_={"ended": until}, where=observation_keys.c.ended <= now
        )
        return (await self._connection.execute(taken.returning(observation_keys.c.key))).first() is not None

    async def keep(self, week: str, until: float) -> None:
        """Extend the claim of a week until a time, such as after it was posted."""
        mine = (observation_keys.c.subject == MARKS, observation_keys.c.key == week)
        await self._connection.execute(update(observation_keys).where(*mine).values(ended=until))
