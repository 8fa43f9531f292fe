"""Timers in the database, with their latest runs."""

import json
from typing import Any
from uuid import UUID

from sqlalchemy import and_, delete, func, or_, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from broker.models.timers import Schedule, Timer, TimerRun, TimerTransfer
from broker.schema.access import locks
from broker.schema.tasks import tasks
from broker.schema.timers import timer_runs, timers
from broker.storage.dialects import clock

__all__ = ["TimerStore"]

DAY = 86_400.0
KEPT = 100
"""Latest runs that are kept for each timer."""
MOST = 200
"""Most timers in a list."""
PART = 10
"""Most timers whose transfers are in memory at once for a list; each has up to a few MB."""
AT_ONCE = 100
"""Most ids of due timers in one answer."""
LOCKED = select(locks.c.subject)
DECIDING = ("owner", "role", "token_id", "client_id", "limit_at", "next_run", "runs")
"""Columns on which the run of a timer depends."""
WAITING = and_(timers.c.next_run.is_not(None), timers.c.stopped.is_(None), timers.c.owner.not_in(LOCKED))
UNFINISHED = (
    select(timer_runs.c.number)
    .join(tasks, tasks.c.id == timer_runs.c.task_id)
    .where(timer_runs.c.timer_id == timers.c.id, timer_runs.c.number == timers.c.runs, tasks.c.status == "ACTIVE")
    .correlate(timers)
    .exists()
)
"""The condition that the task of a timer's last run is not over."""


class TimerStore:
    """Timers in the database."""

    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection

    async def add(self, timer: Timer) -> None:
        """Add a timer."""
        values = {name: value for name, value in timer._asdict().items() if name not in ("transfer", "schedule")}
        document = json.dumps(timer.transfer.document())
        values |= {"id": str(timer.id), "transfer": document, **timer.schedule._asdict()}
        await self._connection.execute(timers.insert().values(values))

    async def one(self, number: str, owner: str, lock: bool = False) -> Timer | None:
        """Return a user's timer; None if there is none.

        :param lock: whether to lock it until the transaction ends
        """
        query = select(timers).where(timers.c.id == number, timers.c.owner == owner)
        row = (await self._connection.execute(query.with_for_update() if lock else query)).one_or_none()
        return None if row is None else _timer(row)

    async def all(self, owner: str) -> list[Timer]:
        """Return up to `MOST` of a user's timers, without the items of their transfers.

        Timers that have ended come last; among the others and among these, the newest is the first.
        """
        order = (timers.c.next_run.is_(None), timers.c.submitted_at.desc(), timers.c.id)
        query = select(timers.c.id).where(timers.c.owner == owner).order_by(*order).limit(MOST)
        numbers = list((await self._connection.execute(query)).scalars())
        found: dict[str, Timer] = {}
        for at in range(0, len(numbers), PART):
            part = select(timers).where(timers.c.id.in_(numbers[at : at + PART]))
            found |= {row.id: _timer(row, items=False) for row in await self._connection.execute(part)}
        return [found[number] for number in numbers if number in found]

    async def count(self, owner: str) -> int:
        """Return the number of a user's timers that have not ended."""
        query = select(func.count()).select_from(timers)
        query = query.where(timers.c.owner == owner, timers.c.next_run.is_not(None))
        return int((await self._connection.execute(query)).scalar_one())

    async def due(self) -> list[str]:
        """Return the ids of timers whose next run is due and whose last task is over.

        Also those whose clock was set back by days. The transfers of all of them would not fit into memory.
        """
        now = clock(self._connection)
        misled = and_(timers.c.interval.is_not(None), timers.c.last_ran_at > now + DAY)
        query = select(timers.c.id).where(WAITING, or_(timers.c.next_run <= now, misled), ~UNFINISHED)
        rows = await self._connection.execute(query.order_by(timers.c.next_run, timers.c.id).limit(AT_ONCE))
        return list(rows.scalars())

    async def waiting(self, number: str) -> Timer | None:
        """Return a timer; None if it does not exist, or does not wait for a next run."""
        row = (await self._connection.execute(select(timers).where(timers.c.id == number, WAITING))).one_or_none()
        return None if row is None else _timer(row)

    async def claim(self, timer: Timer) -> bool:
        """Lock a due timer until the transaction ends; return whether it is unchanged and no other process has it."""
        same = [timers.c[name].is_not_distinct_from(getattr(timer, name)) for name in DECIDING]
        query = select(timers.c.id).where(timers.c.id == str(timer.id), *same, WAITING, ~UNFINISHED)
        locked = query.with_for_update(of=timers, skip_locked=True)
        return (await self._connection.execute(locked)).first() is not None

    async def change(self, number: UUID, **values: Any) -> None:
        """Change columns of a timer."""
        await self._connection.execute(update(timers).where(timers.c.id == str(number)).values(values))

    async def note(self, timer: UUID, run: TimerRun) -> None:
        """Add a run, and delete the oldest ones beyond `KEPT`."""
        await self._connection.execute(timer_runs.insert().values({"timer_id": str(timer), **run._asdict()}))
        old = (timer_runs.c.timer_id == str(timer), timer_runs.c.number <= run.number - KEPT)
        await self._connection.execute(delete(timer_runs).where(*old))

    async def runs(self, number: str, limit: int) -> list[TimerRun]:
        """Return the latest runs of a timer, the newest first."""
        fields = [timer_runs.c[name] for name in TimerRun._fields]
        query = select(*fields).where(timer_runs.c.timer_id == number).order_by(timer_runs.c.number.desc())
        return [TimerRun(*row) for row in await self._connection.execute(query.limit(limit))]

    async def unfinished(self, owner: str) -> set[UUID]:
        """Return a user's timers whose last task is not over."""
        rows = await self._connection.execute(select(timers.c.id).where(timers.c.owner == owner, UNFINISHED))
        return {UUID(number) for number in rows.scalars()}

    async def forget(self, before: float) -> None:
        """Delete all users' timers that have ended, if their last run and their planned end were before a time."""
        ended = and_(timers.c.next_run.is_(None), func.coalesce(timers.c.last_ran_at, timers.c.submitted_at) < before)
        planned = or_(timers.c.until.is_(None), timers.c.until < before)
        await self._connection.execute(delete(timers).where(ended, planned))

    async def remove(self, number: UUID) -> None:
        """Delete a timer with its runs; tasks that it submitted stay."""
        await self._connection.execute(delete(timers).where(timers.c.id == str(number)))


def _timer(row: Any, items: bool = True) -> Timer:
    """Return the timer of a row. :param items: whether to read the items of its transfer"""
    values = dict(row._mapping)
    schedule = Schedule(*(values.pop(name) for name in Schedule._fields))
    document = json.loads(values.pop("transfer"))
    transfer = TimerTransfer.read(document if items else {**document, "items": []})
    return Timer(**{**values, "id": UUID(row.id)}, transfer=transfer, schedule=schedule)
