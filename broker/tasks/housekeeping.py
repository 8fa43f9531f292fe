"""Housekeeping of any worker: it frees leases of dead ones, ends tasks at their deadlines, notes how far they are.

Each is a transaction of its own, so that none holds what another one waits for.
"""

from collections.abc import Collection

import structlog

from broker.models.tasks import Event
from broker.storage.clock import read_clock
from broker.storage.database import Database, retried
from broker.storage.tasks import Tasks
from broker.storage.workers import Workers

__all__ = ["SILENCE", "Housekeeping"]

SILENCE = 15.0
"""Seconds after which a worker that says nothing is dead."""
TOLD = 60.0
"""How often the log of a task tells how far it is."""
log = structlog.get_logger("broker.tasks")


class Housekeeping:
    """Keeps the tables of one database in order."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def do(self, worker: str, mine: Collection[str]) -> None:
        """Do what is due.

        :param worker: who does it; it is not dead
        :param mine: the tasks that it has lanes of
        """
        await self._bury(worker)
        async with self._database.read() as connection:
            late = await Tasks(connection).expired(await read_clock(connection))
        for task in late:
            await self._expire(task)
        await self._tell(mine)

    @retried
    async def _bury(self, worker: str) -> None:
        async with self._database.write() as connection:
            workers = Workers(connection)
            dead = [name for name in await workers.dead(SILENCE) if name != worker]
            if dead:
                log.warning("workers are dead", workers=dead)
                await workers.leave(dead, died=True)

    @retried
    async def _expire(self, task: str) -> None:
        """End a task whose deadline is over, unless another worker has, or the deadline is another by now."""
        async with self._database.write() as connection:
            tasks, now = Tasks(connection), await read_clock(connection)
            if await tasks.end(task, now, "EXPIRED", "its deadline is over", "expired", by=now):
                await tasks.note([(task, Event(now, "EXPIRED", True, "expired", "its deadline is over"))])

    @retried
    async def _tell(self, mine: Collection[str]) -> None:
        async with self._database.write() as connection:
            now = await read_clock(connection)
            await Tasks(connection).progress(mine, now, now - TOLD)
