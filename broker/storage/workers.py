"""Workers in the database, with their heartbeats by its clock, and the numbers of their last writes.

A transaction that locks rows of several tables locks them in this order: workers, tasks by id, work.
"""

from collections.abc import Collection

from sqlalchemy import and_, delete, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from broker.schema.tasks import lanes, work, workers
from broker.storage.dialects import clock

__all__ = ["WorkerStore"]


class WorkerStore:
    """Workers in the database."""

    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection

    async def enrol(self, worker: str, site: str, place: str) -> None:
        """Register a starting worker."""
        now = clock(self._connection)
        await self._connection.execute(
            workers.insert().values(id=worker, site=site, place=place, started_at=now, seen_at=now)
        )

    async def beat(self, worker: str) -> bool:
        """Record that a worker is alive; return False if it counts as dead, so that its leases were freed."""
        seen = update(workers).where(workers.c.id == worker).values(seen_at=clock(self._connection))
        return bool((await self._connection.execute(seen)).rowcount)

    async def may_flush(self, worker: str, number: int) -> float | None:
        """Return the database's time if a live worker has not made the write `number` yet; otherwise None.

        The worker cannot be declared dead before this transaction ends.
        """
        fresh = select(clock(self._connection)).where(workers.c.id == worker, workers.c.flushed < number)
        fresh = fresh.with_for_update(read=True, key_share=True, of=workers)
        return (await self._connection.execute(fresh)).scalar()

    async def flushed(self, worker: str, number: int) -> bool:
        """Record that a worker has made the write `number`; return False if it is recorded already.

        Call it last in a transaction: it locks the row, which blocks the worker's heartbeats until the end.
        """
        written = update(workers).where(workers.c.id == worker, workers.c.flushed < number).values(flushed=number)
        return bool((await self._connection.execute(written)).rowcount)

    async def remove(self, gone: Collection[str], died: bool = False) -> None:
        """Remove workers, and free their leases; if the workers died, count the leases as lost.

        A worker that counts as dead may still write. So the received ranges of its files are discarded, and new
        attempts use other temporary names (`worker.temporary_names`).
        """
        there = select(workers.c.id).where(workers.c.id.in_(sorted(gone))).order_by(workers.c.id)
        await self._connection.execute(there.with_for_update())  # now they cannot lease anything
        mine = and_(work.c.worker.in_(list(gone)), work.c.state == "leased")
        lost = {"lost": work.c.lost + 1, "received": None} if died else {}
        await self._connection.execute(update(work).where(mine).values(state="pending", worker=None, **lost))
        await self._connection.execute(delete(lanes).where(lanes.c.worker.in_(list(gone))))
        await self._connection.execute(delete(workers).where(workers.c.id.in_(list(gone))))

    async def dead(self, silence: float) -> list[str]:
        """Lock and return the workers without a heartbeat for `silence` seconds.

        A worker whose row is locked, because it is writing, is left out.
        """
        silent = select(workers.c.id).where(workers.c.seen_at < clock(self._connection) - silence)
        rows = await self._connection.execute(silent.order_by(workers.c.id).with_for_update(skip_locked=True))
        return list(rows.scalars())
