"""Tasks that need the removal of partial files, or a notice to the webhook.

The transaction that ends a task, or tells that its deadline may not be kept, also marks it for this work, so that none
is lost.
"""

from collections.abc import Collection

from sqlalchemy import and_, case, func, or_, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from broker.models.lanes import LaneCandidate
from broker.models.tasks import DEADLINE_CODES, Event, Task, Work
from broker.schema.tasks import events, lanes, tasks, work
from broker.storage.lanes import CANDIDATE, candidate
from broker.storage.tasks import TaskStore
from broker.storage.work import WorkStore

__all__ = ["LeftoverStore", "NoticeStore"]

PAUSE = 60.0
"""Shortest time in seconds until a task is due again; later, the time since the end of the task."""
LONGEST = 86_400.0
"""Seconds after the end of a task until its last attempt."""
ENDS = ("canceled", "expired", "failed", "skipped")


class LeftoverStore:
    """Ended tasks whose partial files must be removed."""

    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection

    async def due(self, queues: Collection[str], now: float, most: int) -> list[str]:
        """Return the due tasks without open lanes, the one that has waited longest first."""
        left = ~select(lanes.c.id).where(lanes.c.task_id == tasks.c.id).correlate(tasks).exists()
        chosen = select(tasks.c.id).where(tasks.c.unswept <= now, tasks.c.queue.in_(list(queues)), left)
        return list((await self._connection.execute(chosen.order_by(tasks.c.unswept).limit(most))).scalars())

    async def take(self, number: str, now: float) -> LaneCandidate | None:
        """Take a due task; None if another worker has taken it. It becomes due again later unless `done` is called."""
        age = now - tasks.c.completed_at
        again = case((age > LONGEST, None), (age > PAUSE, now + age), else_=now + PAUSE)
        mine = update(tasks).where(tasks.c.id == number, tasks.c.unswept <= now).values(unswept=again)
        row = (await self._connection.execute(mine.returning(*(tasks.c[name] for name in CANDIDATE)))).one_or_none()
        return None if row is None else candidate(row)

    async def begun(self, number: str, after: int, most: int) -> list[Work]:
        """Return copies and symbolic links that were started but not completed, or that a dead worker had, by id."""
        tried = or_(work.c.attempt > 0, work.c.received.is_not(None))
        left = or_(and_(work.c.state.in_(ENDS), tried), work.c.lost > 0)
        of_task = (work.c.task_id == number, work.c.kind.in_(("copy", "link")), left)
        return await WorkStore(self._connection).some(*of_task, work.c.id > after, most=most)

    async def again(self, numbers: Collection[str], now: float) -> None:
        """Make the ended tasks among these due again, because a worker that counted as dead was still running them."""
        over = and_(tasks.c.id.in_(sorted(numbers)), tasks.c.status != "ACTIVE")
        await self._connection.execute(update(tasks).where(over).values(unswept=now))

    async def done(self, number: str) -> None:
        """Record that a task has no partial files left."""
        await self._connection.execute(update(tasks).where(tasks.c.id == number).values(unswept=None))


class NoticeStore:
    """Tasks whose notice is due: of their end, or of their deadline."""

    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection

    async def due(self, now: float, most: int) -> list[str]:
        """Return the tasks whose notice is due, the oldest first."""
        chosen = select(tasks.c.id).where(tasks.c.untold <= now).order_by(tasks.c.untold).limit(most)
        return list((await self._connection.execute(chosen)).scalars())

    async def take(self, numbers: Collection[str], now: float, until: float) -> list[Task]:
        """Claim the tasks that no other process has claimed, until a time; return them."""
        mine = update(tasks).where(tasks.c.id.in_(sorted(numbers)), tasks.c.untold <= now).values(untold=until)
        taken = (await self._connection.execute(mine.returning(tasks.c.id))).scalars()
        return await TaskStore(self._connection).some(list(taken))

    async def put(self, number: str, until: float, at: float | None) -> None:
        """Set the time of the next attempt to send a task's notice; None for no further attempt.

        :param until: the time until which it was claimed; if another notice is due since then, nothing changes
        """
        mine = update(tasks).where(tasks.c.id == number, tasks.c.untold == until)
        await self._connection.execute(mine.values(untold=at))

    async def of_deadlines(self, numbers: Collection[str]) -> dict[str, tuple[int, Event]]:
        """Return the last event of the deadline of each of these tasks that has one, with its number."""
        codes = (events.c.task_id.in_(sorted(numbers)), events.c.code.in_(DEADLINE_CODES))
        last = select(func.max(events.c.id)).where(*codes).group_by(events.c.task_id)
        rows = (await self._connection.execute(select(events).where(events.c.id.in_(last)))).all()
        return {row.task_id: (row.id, Event.of(row)) for row in rows}
