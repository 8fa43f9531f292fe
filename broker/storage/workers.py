"""Workers in the database: who is there, by the database's time; what they write is numbered, so that it counts once.

A transaction that locks rows of several of these tables locks them in this order: workers, tasks by their ids, work.
"""

from collections.abc import Collection

from sqlalchemy import and_, delete, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from broker.schema.tasks import lanes, work, workers
from broker.storage.clock import clock

__all__ = ["Workers"]


class Workers:
    """The workers."""

    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection

    async def enrol(self, worker: str, site: str, place: str) -> None:
        """A worker begins."""
        now = clock(self._connection)
        await self._connection.execute(
            workers.insert().values(id=worker, site=site, place=place, started_at=now, seen_at=now)
        )

    async def beat(self, worker: str) -> bool:
        """A worker is there; False when it was taken for dead, and its leases are others' by now."""
        seen = update(workers).where(workers.c.id == worker).values(seen_at=clock(self._connection))
        return bool((await self._connection.execute(seen)).rowcount)

    async def may_flush(self, worker: str, number: int) -> float | None:
        """The time, where a worker that is there has not written this yet; it is not dead before this transaction ends.

        None where it has, or is taken for dead.
        """
        fresh = select(clock(self._connection)).where(workers.c.id == worker, workers.c.flushed < number)
        fresh = fresh.with_for_update(read=True, key_share=True, of=workers)
        return (await self._connection.execute(fresh)).scalar()

    async def flushed(self, worker: str, number: int) -> bool:
        """A worker has written this; False when it had before, in a transaction that ended only now.

        This comes last in a transaction: the row is locked from then on, and the worker cannot say that it is there.
        """
        written = update(workers).where(workers.c.id == worker, workers.c.flushed < number).values(flushed=number)
        return bool((await self._connection.execute(written)).rowcount)

    async def leave(self, gone: Collection[str], died: bool = False) -> None:
        """Workers have gone: what they had leased is free again, and counted as lost with them if they died.

        A worker that is taken for dead may still write: so what has arrived at its files is nobody's, and they begin
        anew under other names (`tasks.beside`).
        """
        there = select(workers.c.id).where(workers.c.id.in_(sorted(gone))).order_by(workers.c.id)
        await self._connection.execute(there.with_for_update())  # none of them leases anything from now on
        mine = and_(work.c.worker.in_(list(gone)), work.c.state == "leased")
        lost = {"lost": work.c.lost + 1, "received": None} if died else {}
        await self._connection.execute(update(work).where(mine).values(state="pending", worker=None, **lost))
        await self._connection.execute(delete(lanes).where(lanes.c.worker.in_(list(gone))))
        await self._connection.execute(delete(workers).where(workers.c.id.in_(list(gone))))

    async def dead(self, silence: float) -> list[str]:
        """Workers that were silent for so many seconds; none of them is heard before this transaction is over.

        One that writes something just now is not dead, whatever it said last.
        """
        silent = select(workers.c.id).where(workers.c.seen_at < clock(self._connection) - silence)
        rows = await self._connection.execute(silent.order_by(workers.c.id).with_for_update(skip_locked=True))
        return list(rows.scalars())
