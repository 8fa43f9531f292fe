"""Tasks whose end still has to be announced: marked in the transaction that ends them, so that none is forgotten."""

from collections.abc import Collection

from sqlalchemy import select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from broker.models.tasks import Task
from broker.schema.tasks import tasks
from broker.storage.tasks import TaskStore

__all__ = ["NoticeStore"]


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
