"""The leases of one worker, kept consistent with the database even if the database fails for a while.

The worker's heartbeat (`worker.Worker`) keeps all its leases valid; no lease is renewed separately.

Leases that could not be given back are kept as owed, and leases that only the database has are found and given back.
"""

import asyncio
from collections.abc import Collection, Sequence

from broker.models.tasks import Work, WorkKind
from broker.storage.database import Database
from broker.storage.dialects import clock
from broker.storage.lanes import LaneStore
from broker.storage.work import WorkStore
from broker.worker.recorder import Recorder

__all__ = ["FEWEST", "Leases", "next_batch_size"]

FEWEST, MOST, BATCH_BYTES = 250, 1000, 64 << 20
"""Bounds on the work items, and the bytes, of one batch of leases."""
MOMENT = 0.5


def next_batch_size(done: int, seconds: float) -> int:
    """Return how many work items to lease next, from the size of the last batch and its duration in seconds.

    A batch should take about `MOMENT` seconds: one transaction costs as much as many small files.

    >>> next_batch_size(250, 0.2), next_batch_size(250, 30.0), next_batch_size(1, 1e-9)
    (625, 250, 1000)
    """
    return max(FEWEST, min(MOST, int(done * MOMENT / seconds)))


class Leases:
    """The leases of one worker, under its current name in the database."""

    def __init__(self, database: Database, recorder: Recorder) -> None:
        self._database = database
        self._recorder = recorder
        self._worker = ""
        self._held: set[tuple[int, int]] = set()
        self._owed: list[Work] = []
        self._over: set[int] = set()
        self._leasing = asyncio.Lock()
        self._settling = asyncio.Lock()

    def begin(self, worker: str, sent: float) -> None:
        """Begin under a new name; leases under an earlier name no longer belong to this worker.

        :param sent: time when the name was sent to the database, as for `Fence.contacted`
        """
        self._worker, self._held, self._owed = worker, set(), []
        self._recorder.fence.begin(worker, sent)

    async def lease(
        self, task: str, groups: Sequence[Collection[WorkKind]], large_first: bool, most: int
    ) -> list[Work]:
        """Lease work items of the first of these groups that has any.

        The caller alternates the order of the groups, so that copying begins before all directories are listed; every
        other lane takes large files first, so that small files fill the gaps.
        """
        async with self._leasing:
            batch = await self._leased(task, groups, large_first, most)
            self._held.update(work.lease for work in batch)
        return batch

    async def _leased(
        self, task: str, groups: Sequence[Collection[WorkKind]], large_first: bool, most: int
    ) -> list[Work]:
        async with self._database.write() as connection:
            works, now = WorkStore(connection), clock(connection)
            for group in groups:
                if batch := await works.lease(task, self._worker, group, large_first, most, BATCH_BYTES, now):
                    return batch
        return []

    async def settle(self, batch: Sequence[Work], lane: int | None = None) -> None:
        """Record results, give back the unfinished items of a batch, and close a lane; after a failure, retry later."""
        self._owed.extend(batch)
        if lane is not None:
            self._over.add(lane)
        async with self._settling:
            owed, over = self._owed, self._over  # taken before the flush: results of work owed later may not be in it
            self._owed, self._over = [], set()
            try:
                recorded = await self._recorder.flush(self._worker)
            except BaseException:
                self._owed, self._over = owed + self._owed, over | self._over
                raise
            self._held -= recorded
            await self._give_back(owed, over)

    async def _give_back(self, owed: Sequence[Work], over: Collection[int]) -> None:
        """Give back owed leases whose results were not recorded.

        They are removed from memory first; after a failed transaction, `reconcile` finds those still in the database.
        """
        self._recorder.forget(owed)
        left = {work.lease for work in owed} & self._held
        self._held -= left
        if left or over:
            try:
                async with self._database.write() as connection:
                    await WorkStore(connection).release(self._worker, left)
                    await LaneStore(connection).close(self._worker, over)
            except BaseException:
                self._over.update(over)
                raise

    async def reconcile(self) -> None:
        """Give back leases of this worker that only the database has.

        They arise when the answer to a lease was lost, or when a crash of the database lost recorded results because it
        acknowledges transactions before they are on disk.
        """
        async with self._settling, self._leasing, self._database.write() as connection:
            works = WorkStore(connection)
            await works.release(self._worker, await works.leased(self._worker) - self._held)
