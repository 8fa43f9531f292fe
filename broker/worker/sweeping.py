"""Deletion of the partial data of ended tasks, including those that other workers wrote.

A task is marked when it ends, and swept after its last lane is closed, so that nothing is written afterwards. Failed
sweeps are repeated for a day.
"""

import asyncio
from collections.abc import Collection, Sequence
from typing import Protocol

import structlog

from broker.errors import BrokerError
from broker.models.lanes import LaneCandidate
from broker.models.tasks import Work
from broker.storage.database import Database, retried
from broker.storage.dialects import read_clock
from broker.storage.ended_tasks import LeftoverStore
from coalloc.errors import CoallocError

__all__ = ["Cleaner", "Sweeper"]

AT_ONCE = 8
BATCH = 1000
SECONDS = 30.0
"""Timeout for sweeping one task, so that an unresponsive server does not block the others."""
log = structlog.get_logger("broker.worker")


class Cleaner(Protocol):
    """An object that can delete the partial data of work items."""

    async def delete_partial_files(self, task: LaneCandidate, batch: Sequence[Work]) -> None:
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
                await self._delete_partial_files(task)
        except (BrokerError, CoallocError, TimeoutError) as error:
            log.warning(
                "failed to remove partial data of a task; trying again",
                task=number,
                error=str(error) or "it took too long",
            )
            return
        await self._done(number)

    async def _delete_partial_files(self, task: LaneCandidate) -> None:
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
                await self._cleaner.delete_partial_files(task, batch)
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
