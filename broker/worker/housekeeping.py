"""Housekeeping that any worker does: it frees the leases of dead workers, ends expired tasks, and logs progress.

Each step has its own transaction, so that none waits for the locks of another.

A sweeper deletes the partial data of ended tasks, including those that other workers wrote. A task is marked when it
ends, and swept after its last lane is closed, so that nothing is written afterwards. Failed sweeps are repeated for
a day.
"""

import asyncio
from collections.abc import Collection, Sequence
from typing import Protocol

import structlog

from broker.errors import BrokerError
from broker.models.lanes import LaneCandidate
from broker.models.tasks import Event, Work
from broker.storage.database import Database, retried
from broker.storage.dialects import read_clock
from broker.storage.ended_tasks import LeftoverStore
from broker.storage.tasks import TaskStore
from broker.storage.workers import WorkerStore
from coalloc.errors import CoallocError

__all__ = ["SILENCE", "Cleaner", "Housekeeping", "Sweeper"]

SILENCE = 15.0
"""Seconds of silence after which a worker counts as dead."""
PROGRESS_SECONDS = 60.0
"""Seconds between progress events in the log of a task."""
AT_ONCE = 8
BATCH = 1000
SECONDS = 30.0
"""Timeout for sweeping one task, so that an unresponsive server does not block the others."""
log = structlog.get_logger("broker.worker")


class Housekeeping:
    """Housekeeping in one database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def do(self, worker: str, mine: Collection[str]) -> None:
        """Do the steps that are due.

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


class Cleaner(Protocol):
    """An object that can delete the partial data of work items."""

    async def delete_partial_copies(self, task: LaneCandidate, batch: Sequence[Work]) -> None:
        """Delete the partial data of a batch of work items that no worker has, and that will not be finished.

        :raises BrokerError: :raises CoallocError: when some data may still exist
        """
        ...


class Sweeper:
    """The sweeper for the tasks of some queues."""

    def __init__(self, database: Database, cleaner: Cleaner, queues: Collection[str]) -> None:
        self._database = database
        self._cleaner = cleaner
        self._queues = queues

    async def sweep(self) -> None:
        """Delete the partial data of the tasks that are due."""
        async with self._database.read() as connection:  # no write transaction unless something is due
            due = await LeftoverStore(connection).due(self._queues, await read_clock(connection), AT_ONCE)
        await asyncio.gather(*map(self._sweep, due))

    async def _sweep(self, number: str) -> None:
        task = await self._take(number)
        if task is None:
            return
        try:
            async with asyncio.timeout(SECONDS):
                await self._delete_partial_copies(task)
        except (BrokerError, CoallocError, TimeoutError) as error:
            log.warning(
                "failed to remove partial data of a task; trying again",
                task=number,
                error=str(error) or "it took too long",
            )
            return
        await self._done(number)

    async def _delete_partial_copies(self, task: LaneCandidate) -> None:
        """Delete all partial data of a task; a failure in one batch does not stop the others.

        :raises BrokerError: :raises CoallocError: the first failure, after all batches were tried
        """
        after, wrong = 0, []
        while True:
            async with self._database.read() as connection:
                batch = await LeftoverStore(connection).begun(task.task, after, BATCH)
            if not batch:
                break
            try:
                await self._cleaner.delete_partial_copies(task, batch)
            except (BrokerError, CoallocError) as error:
                wrong.append(error)
            after = batch[-1].id
        if wrong:
            raise wrong[0]

    @retried
    async def _take(self, number: str) -> LaneCandidate | None:
        async with self._database.write() as connection:
            return await LeftoverStore(connection).take(number, await read_clock(connection))

    @retried
    async def _done(self, number: str) -> None:
        async with self._database.write() as connection:
            await LeftoverStore(connection).done(number)
