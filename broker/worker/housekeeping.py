"""Housekeeping, done by any worker: frees the leases of dead workers, ends expired tasks, logs progress, and sweeps.

Each of these is a transaction of its own, so that none holds a lock that another waits for.

Sweeping removes the partial data that ended tasks have left, whichever worker wrote them. A task is marked when it
ends, and swept when its last lane is closed, so that nothing is written afterwards. What cannot be reached is tried
again for a day.
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
"""Timeout for one task, so that a server that hangs delays the others no longer."""
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
        """End a task whose deadline has passed, unless it has ended already or its deadline was changed meanwhile."""
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
    """The cleaner that knows where work items keep their partial data."""

    async def delete_partial_copies(self, task: LaneCandidate, batch: Sequence[Work]) -> None:
        """Clear away the partial data of a batch that will not be finished and that no worker does.

        :raises BrokerError: :raises CoallocError: when some data may still be there
        """
        ...


class Sweeper:
    """The sweeper for the tasks of some queues."""

    def __init__(self, database: Database, cleaner: Cleaner, queues: Collection[str]) -> None:
        self._database = database
        self._cleaner = cleaner
        self._queues = queues

    async def sweep(self) -> None:
        """Clear away what is due."""
        async with self._database.read() as connection:  # a read, which writes nothing if nothing is due
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
        """Clear away all that can be; a failure in one batch does not stop the others.

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
