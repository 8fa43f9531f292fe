"""Ended tasks with something left to do, each marked in the transaction that ends it, so that none is forgotten.

Partial files may have to be removed, and the end to be announced.
"""

from collections.abc import Collection

from sqlalchemy import and_, case, or_, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from broker.models.lanes import LaneCandidate
from broker.models.tasks import Task, Work
from broker.schema.tasks import lanes, tasks, work
from broker.storage.lanes import CANDIDATE, candidate
from broker.storage.tasks import TaskStore
from broker.storage.work import WorkStore

__all__ = ["LeftoverStore", "NoticeStore"]

PAUSE = 60.0
"""Seconds until a task that a worker took is due again, or the time since the end of the task, if that is longer."""
LONGEST = 86_400.0
"""Seconds after its end at which a task is tried for the last time."""
ENDS = ("canceled", "expired", "failed", "skipped")


class LeftoverStore:
    """Tasks whose leftovers still have to be removed."""

    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection

    async def due(self, queues: Collection[str], now: float, most: int) -> list[str]:
        """Return tasks without open lanes that are due, the one that has waited longest first."""
        left = ~select(lanes.c.id).where(lanes.c.task_id == tasks.c.id).correlate(tasks).exists()
        chosen = select(tasks.c.id).where(tasks.c.unswept <= now, tasks.c.queue.in_(list(queues)), left)
        return list((await self._connection.execute(chosen.order_by(tasks.c.unswept).limit(most))).scalars())

    async def take(self, number: str, now: float) -> LaneCandidate | None:
        """Take one of these tasks, unless another worker has; it is due again later unless it is reported as done."""
        age = now - tasks.c.completed_at
        again = case((age > LONGEST, None), (age > PAUSE, now + age), else_=now + PAUSE)
        mine = update(tasks).where(tasks.c.id == number, tasks.c.unswept <= now).values(unswept=again)
        row = (await self._connection.execute(mine.returning(*(tasks.c[name] for name in CANDIDATE)))).one_or_none()
        return None if row is None else candidate(row)

    async def begun(self, number: str, after: int, most: int) -> list[Work]:
        """Return copies and symbolic links that were begun but not completed, or lost with a worker, by their ids."""
        tried = or_(work.c.attempt > 0, work.c.received.is_not(None))
        left = or_(and_(work.c.state.in_(ENDS), tried), work.c.lost > 0)
        of_task = (work.c.task_id == number, work.c.kind.in_(("copy", "link")), left)
        return await WorkStore(self._connection).some(*of_task, work.c.id > after, most=most)

    async def again(self, numbers: Collection[str], now: float) -> None:
        """Make finished ones of these tasks due again: a worker that was considered dead was still working on them."""
        over = and_(tasks.c.id.in_(sorted(numbers)), tasks.c.status != "ACTIVE")
        await self._connection.execute(update(tasks).where(over).values(unswept=now))

    async def done(self, number: str) -> None:
        """Record that nothing of a task is left to remove."""
        await self._connection.execute(update(tasks).where(tasks.c.id == number).values(unswept=None))


class NoticeStore:
    """Announcements of ended tasks that are still due."""

    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection

    async def due(self, now: float, most: int) -> list[str]:
        """Return tasks whose announcement is due, the oldest first."""
        chosen = select(tasks.c.id).where(tasks.c.untold <= now).order_by(tasks.c.untold).limit(most)
        return list((await self._connection.execute(chosen)).scalars())

    async def take(self, numbers: Collection[str], now: float, until: float) -> list[Task]:
        """Claim those of these tasks that no other process has claimed, until the given time; return them."""
        mine = update(tasks).where(tasks.c.id.in_(sorted(numbers)), tasks.c.untold <= now).values(untold=until)
        taken = (await self._connection.execute(mine.returning(tasks.c.id))).scalars()
        return await TaskStore(self._connection).some(list(taken))

    async def put(self, number: str, at: float | None) -> None:
        """Set when to announce the end of this task again; None: it is announced."""
        await self._connection.execute(update(tasks).where(tasks.c.id == number).values(untold=at))
