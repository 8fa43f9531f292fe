"""Periodic checks by each worker: it frees the leases of dead workers, ends expired tasks, and logs progress.

Each check has its own transaction, so that none waits for the locks of another.
"""

from collections.abc import Collection

import structlog

from broker.models.tasks import Event
from broker.storage.database import Database, retried
from broker.storage.dialects import read_clock
from broker.storage.tasks import TaskStore
from broker.storage.workers import WorkerStore

__all__ = ["SILENCE", "PeriodicChecks"]

SILENCE = 15.0
"""Seconds of silence after which a worker counts as dead."""
PROGRESS_SECONDS = 60.0
"""Seconds between progress events in the log of a task."""
log = structlog.get_logger("broker.worker")


class PeriodicChecks:
    """The periodic checks of one database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def do(self, worker: str, mine: Collection[str]) -> None:
        """Do all checks.

        :param worker: name of the calling worker, which is never counted as dead here
        :param mine: tasks for which the calling worker has lanes
        """
        await self._free_leases_of(worker)
        async with self._database.read() as connection:
            late = await TaskStore(connection).expired(await read_clock(connection))
        for task in late:
            await self._expire(task)
        await self._note_progress(mine)

    @retried
    async def _free_leases_of(self, worker: str) -> None:
        async with self._database.write() as connection:
            workers = WorkerStore(connection)
            dead = [name for name in await workers.dead(SILENCE) if name != worker]
            if dead:
                log.warning("some workers are dead", workers=dead)
                await workers.remove(dead, died=True)

    @retried
    async def _expire(self, task: str) -> None:
        """End a task whose deadline has passed; do nothing if it has ended or its deadline has been postponed."""
        async with self._database.write() as connection:
            tasks, now = TaskStore(connection), await read_clock(connection)
            if await tasks.end(task, now, "EXPIRED", "its deadline has passed", "expired", by=now):
                await tasks.note([(task, Event(now, "EXPIRED", True, "expired", "its deadline has passed"))])

    @retried
    async def _note_progress(self, mine: Collection[str]) -> None:
        async with self._database.write() as connection:
            now = await read_clock(connection)
            await TaskStore(connection).progress(mine, now, now - PROGRESS_SECONDS)
