"""Which weeks' reports were posted, or are being so: only one process posts each.

A mark is a key of the history's, under a subject of its own, so that it is forgotten as all else is; its end is the
moment until which nobody else may have the week.
"""

from sqlalchemy import update
from sqlalchemy.ext.asyncio import AsyncConnection

from broker.schema.history import observation_keys
from broker.storage.upsert import insert

__all__ = ["Posted"]

MARKS = "broker.reports"
"""As whom marks are kept; no caller is called so."""


class Posted:
    """The marks."""

    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection

    async def take(self, week: str, now: float, until: float) -> bool:
        """Have the week until a moment; false when somebody has it, or had it and was done."""
        mark = {"subject": MARKS, "key": week, "ended": until}
        taken = insert(self._connection, observation_keys).values(mark)
        taken = taken.on_conflict_do_update(
            index_elements=["subject", "key"], set_={"ended": until}, where=observation_keys.c.ended <= now
        )
        return (await self._connection.execute(taken.returning(observation_keys.c.key))).first() is not None

    async def keep(self, week: str, until: float) -> None:
        """Nobody has it until then: it is done, or may be tried again after."""
        mine = (observation_keys.c.subject == MARKS, observation_keys.c.key == week)
        await self._connection.execute(update(observation_keys).where(*mine).values(ended=until))
