"""Workers in the database, with their signs of life by its clock; their writes are numbered, so that each counts once.

A transaction that locks rows of several of these tables locks them in this order: workers, tasks by their ids, work.
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
        """Register a worker that starts."""
        now = clock(self._connection)
        await self._connection.execute(
            workers.insert().values(id=worker, site=site, place=place, started_at=now, seen_at=now)
        )

    async def beat(self, worker: str) -> bool:
        """Record that a worker is alive; return false if it was declared dead and its leases went to others."""
        seen = update(workers).where(workers.c.id == worker).values(seen_at=clock(self._connection))
        return bool((await self._connection.execute(seen)).rowcount)

    async def may_flush(self, worker: str, number: int) -> float | None:
        """Return the database's time if a live worker has not made this write yet; otherwise None.

        The worker cannot be declared dead before this transaction ends.
        """
        fresh = select(clock(self._connection)).where(workers.c.id == worker, workers.c.flushed < number)
        fresh = fresh.with_for_update(read=True, key_share=True, of=workers)
        return (await self._connection.execute(fresh)).scalar()

    async def flushed(self, worker: str, number: int) -> bool:
        """Record that a worker has made this write; return false if another transaction recorded it in the meantime.

        Call it last in a transaction: it locks the row, and until the end the worker cannot report that it is alive.
        """
        written = update(workers).where(workers.c.id == worker, workers.c.flushed < number).values(flushed=number)
        return bool((await self._connection.execute(written)).rowcount)

    async def remove(self, gone: Collection[str], died: bool = False) -> None:
        """Remove workers and free their leases; if they died, count the leases as lost with them.

        A worker that is considered dead may still write. So the ranges that have arrived in its files are discarded,
        and the files are begun again under other names (`tasks.beside`).
        """
        there = select(workers.c.id).where(workers.c.id.in_(sorted(gone))).order_by(workers.c.id)
        await self._connection.execute(there.with_for_update())  # from now on none of them can lease anything
        mine = and_(work.c.worker.in_(list(gone)), work.c.state == "leased")
        lost = {"lost": work.c.lost + 1, "received": None} if died else {}
        await self._connection.execute(update(work).where(mine).values(state="pending", worker=None, **lost))
        await self._connection.execute(delete(lanes).where(lanes.c.worker.in_(list(gone))))
        await self._connection.execute(delete(workers).where(workers.c.id.in_(list(gone))))

    async def dead(self, silence: float) -> list[str]:
        """Return workers that were silent for so many seconds, and lock them until this transaction ends.

        A worker that is writing at the moment is not dead, whenever it last reported.
        """
        silent = select(workers.c.id).where(workers.c.seen_at < clock(self._connection) - silence)
        rows = await self._connection.execute(silent.order_by(workers.c.id).with_for_update(skip_locked=True))
        return list(rows.scalars())
