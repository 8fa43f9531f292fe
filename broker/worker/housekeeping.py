"""Housekeeping, done by any worker: frees the leases of dead workers, ends expired tasks, and logs progress.

Each of these is a transaction of its own, so that none holds a lock that another waits for.
"""

from collections.abc import Collection

import structlog

from broker.models.tasks import Event
from broker.storage.database import Database, retried
from broker.storage.dialects import read_clock
from broker.storage.tasks import TaskStore
from broker.storage.workers import WorkerStore

__all__ = ["SILENCE", "Housekeeping"]

SILENCE = 15.0
"""Seconds of silence after which a worker counts as dead."""
TOLD = 60.0
"""Seconds between progress events in the log of a task."""
log = structlog.get_logger("broker.worker")


class Housekeeping:
    """Housekeeping in one database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def do(self, worker: str, mine: Collection[str]) -> None:
        """Do what is due.

        :param worker: name of the worker that does it, which is not dead
        :param mine: tasks for which it has lanes
        """
        await self._bury(worker)
        async with self._database.read() as connection:
            late = await TaskStore(connection).expired(await read_clock(connection))
        for task in late:
            await self._expire(task)
        await self._tell(mine)

    @retried
    async def _bury(self, worker: str) -> None:
        async with self._database.write() as connection:
            workers = WorkerStore(connection)
            dead = [name for name in await workers.dead(SILENCE) if name != worker]
            if dead:
                log.warning("workers are dead", workers=dead)
                await workers.leave(dead, died=True)

    @retried
    async def _expire(self, task: str) -> None:
        """End a task whose deadline has passed, unless it has ended already or its deadline was changed meanwhile."""
        async with self._database.write() as connection:
            tasks, now = TaskStore(connection), await read_clock(connection)
            if await tasks.end(task, now, "EXPIRED", "its deadline is over", "expired", by=now):
                await tasks.note([(task, Event(now, "EXPIRED", True, "expired", "its deadline is over"))])

    @retried
    async def _tell(self, mine: Collection[str]) -> None:
        async with self._database.write() as connection:
            now = await read_clock(connection)
            await TaskStore(connection).progress(mine, now, now - TOLD)
