"""Deadlines of tasks in the database: which process looks at them, and what was told about them."""

from sqlalchemy import and_, func, or_, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from broker.models.guarantees import WatchedDeadline
from broker.schema.guarantees import OPEN, guarantees
from broker.schema.tasks import ASKED, UNFINISHED, tasks, work
from broker.storage.dialects import clock
from coalloc.guarantees.deadline import Grade

__all__ = ["DeadlineStore"]

LISTING = ("look", "expand", "prune")
SAME = ("id", "owner", "role", "source", "destination", "deadline", "bytes", "bytes_transferred", "files")


class DeadlineStore:
    """Deadlines that owners of tasks have chosen."""

    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection

    async def any(self) -> bool:
        """Return whether a process has to look at the deadline of some task."""
        return bool((await self._connection.execute(select(select(tasks.c.id).where(ASKED).exists()))).scalar())

    async def claim(self, watcher: str, seconds: float, most: int) -> None:
        """Claim tasks that no other process looks at, or has looked at for some time, up to `most` in all."""
        now = clock(self._connection)
        free = or_(tasks.c.watched_until.is_(None), tasks.c.watched_until <= now, tasks.c.watcher == watcher)
        chosen = select(tasks.c.id).where(ASKED, free).order_by(tasks.c.deadline).limit(most)
        mine = update(tasks).where(tasks.c.id.in_(chosen.with_for_update(skip_locked=True)))
        await self._connection.execute(mine.values(watcher=watcher, watched_until=now + seconds))

    async def claimed(self, watcher: str) -> list[WatchedDeadline]:
        """Return the tasks that a process has claimed lately."""
        unlisted = select(work.c.id).where(work.c.task_id == tasks.c.id, UNFINISHED, work.c.kind.in_(LISTING))
        of_task = and_(guarantees.c.task_id == tasks.c.id, guarantees.c.deadline == tasks.c.deadline)
        promise = select(func.max(guarantees.c.id)).where(of_task, OPEN).correlate(tasks).scalar_subquery()
        decided = select(func.max(guarantees.c.bytes)).where(of_task).correlate(tasks).scalar_subquery()
        rows = await self._connection.execute(
            select(
                *(tasks.c[name] for name in SAME),
                tasks.c.deadline_grade.label("grade"),
                (~unlisted.correlate(tasks).exists()).label("listed"),
                promise.label("promise"),
                decided.label("decided_bytes"),
            ).where(ASKED, tasks.c.watcher == watcher, tasks.c.watched_until > clock(self._connection))
        )
        return [WatchedDeadline(**{**row._mapping, "listed": bool(row.listed)}) for row in rows]

    async def note(
        self, number: str, deadline: float, chance: float, holds_at: float | None
    ) -> tuple[bool, Grade | None]:
        """Store what is known about a deadline; return whether it is still the task's, and the grade that was told."""
        mine = (tasks.c.id == number, tasks.c.status == "ACTIVE", tasks.c.deadline == deadline)
        values = {"deadline_chance": chance, "deadline_holds_at": holds_at}
        noted = update(tasks).where(*mine).values(values).returning(tasks.c.deadline_grade)
        row = (await self._connection.execute(noted)).one_or_none()
        return (False, None) if row is None else (True, row.deadline_grade)

    async def grade(self, number: str, grade: Grade) -> None:
        """Store the grade that is told."""
        await self._connection.execute(update(tasks).where(tasks.c.id == number).values(deadline_grade=grade))

    async def notify(self, number: str, now: float) -> None:
        """Mark a task for a notice of its deadline to the webhook."""
        await self._connection.execute(update(tasks).where(tasks.c.id == number).values(untold=now))

    async def close(self, number: str, now: float) -> None:
        """Give up the promise of a task whose owner has changed the deadline."""
        mine = update(guarantees).where(OPEN, guarantees.c.task_id == number)
        await self._connection.execute(mine.values(outcome="given up", ended_at=now))
