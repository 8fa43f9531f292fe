"""Tasks and their events in the database; `storage.work` has their work items."""

from collections.abc import Collection, Sequence
from typing import Any, Literal, NamedTuple, get_args
from uuid import uuid4

import orjson
from sqlalchemy import BigInteger, ColumnElement, and_, case, func, literal, or_, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from broker.errors import Conflict
from broker.models.tasks import Event, NewTask, Status, Task, TaskKind, WorkKind, moves_bytes
from broker.models.work import PlannedWork
from broker.schema.tasks import events, tasks, work
from broker.storage.dialects import insert
from broker.storage.task_state import HELD, shown, task_of
from broker.storage.work import WELL, WorkStore
from coalloc.safe_text import one_line

__all__ = ["CountedTasks", "FinishedWork", "TaskFilter", "TaskStore"]

ORDERED = {
    "request_time": tasks.c.requested_at,
    "completion_time": tasks.c.completed_at,
    "label": tasks.c.label,
    "task_id": tasks.c.id,
    "status": tasks.c.status,
    "type": tasks.c.kind,
}
"""Columns by which lists can be sorted, by their names in Globus."""


class TaskFilter(NamedTuple):
    """A filter of tasks; None means no restriction.

    :param labels: pairs of a label, or `~` and a case-insensitive pattern with `*`, and whether it is required; a task
        must match at least one required label, and no other one
    :param side: whether `collection` must be the source or the destination; None for either
    :param before: request time and id of the last task of the previous page, in lists with the newest first
    """

    owner: str | None = None
    kinds: Collection[TaskKind] | None = None
    statuses: Collection[Status] | None = None
    ids: Collection[str] | None = None
    labels: Sequence[tuple[str, bool]] = ()
    requested: tuple[float | None, float | None] = (None, None)
    completed: tuple[float | None, float | None] = (None, None)
    collection: str | None = None
    side: Literal["source", "destination"] | None = None
    paused: bool | None = None
    faults: int = 0
    before: tuple[float, str] | None = None


class CountedTasks(NamedTuple):
    """A page of tasks, and the number of all that match."""

    tasks: list[Task]
    total: int


class FinishedWork(NamedTuple):
    """A finished work item, such as a transferred or skipped file."""

    id: int
    kind: str
    source: str
    destination: str
    size: int
    checksum: str | None
    error_code: str | None
    error: str | None
    finished_at: float | None


class TaskStore:
    """Tasks in the database."""

    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection

    async def add(self, new: NewTask, planned: Sequence[PlannedWork], now: float) -> tuple[str, bool]:
        """Add a task, unless its owner has submitted it before; return its id, and whether it is new.

        :raises Conflict: when the earlier submission is of another kind
        """
        values = {
            "id": str(uuid4()),
            **new.model_dump(include={"owner", "role", "token_id", "kind", "label", "queue", "deadline"}),
            "deadline_asked": new.deadline_asked and moves_bytes(new.kind, new.options),
            "submission_id": str(new.submission_id),
            "nice": -new.priority,
            "source": str(new.source),
            "destination": new.destination and str(new.destination),
            "options": new.options.model_dump_json(exclude_defaults=True),
            "status": "ACTIVE",
            "requested_at": now,
            "canceled_by_admin": False,
            "waits": "",
            **dict.fromkeys(COUNTERS, 0),
        }
        once = insert(self._connection, tasks).values(values)
        once = once.on_conflict_do_nothing(index_elements=["owner", "submission_id"]).returning(tasks.c.id)
        number = (await self._connection.execute(once)).scalar()
        if number is None:
            same = (tasks.c.owner == new.owner, tasks.c.submission_id == str(new.submission_id))
            known = (await self._connection.execute(select(tasks.c.id, tasks.c.kind).where(*same))).one()
            if known.kind != new.kind:
                taken = f"the submission id {new.submission_id} belongs to a {known.kind.lower()}, task {known.id}"
                raise Conflict(taken, "submit with another one")
            return known.id, False
        await WorkStore(self._connection).add(number, planned)
        return number, True

    async def one(self, number: str) -> Task | None:
        """Return the task with this id; None if it does not exist."""
        row = (
            await self._connection.execute(select(*shown(self._connection)).where(tasks.c.id == number))
        ).one_or_none()
        return None if row is None else task_of(row)

    async def some(self, numbers: Collection[str]) -> list[Task]:
        """Return the existing tasks with these ids."""
        rows = await self._connection.execute(select(*shown(self._connection)).where(tasks.c.id.in_(list(numbers))))
        return [task_of(row) for row in rows]

    async def page(
        self, task_filter: TaskFilter, order: Sequence[tuple[str, bool]], limit: int, offset: int
    ) -> CountedTasks:
        """Return a page of the tasks that match a filter.

        :param order: names of `ORDERED` to sort by, each with True for descending order
        """
        where = and_(*_conditions(task_filter))
        by = [ORDERED[name].desc() if down else ORDERED[name].asc() for name, down in order]
        page = select(*shown(self._connection)).where(where).order_by(*by, tasks.c.id).limit(limit).offset(offset)
        found = [task_of(row) for row in await self._connection.execute(page)]
        total = await self._connection.execute(select(func.count()).select_from(tasks).where(where))
        return CountedTasks(found, total.scalar_one())

    async def change(self, number: str, **values: Any) -> bool:
        """Change an active task; return whether it was active."""
        active = update(tasks).where(tasks.c.id == number, tasks.c.status == "ACTIVE").values(values)
        return bool((await self._connection.execute(active)).rowcount)

    async def end(
        self, number: str, now: float, code: str, error: str, state: str, by: float | None = None, **also: Any
    ) -> bool:
        """End an active task before its work is done; return whether this call ended it.

        The task's row is locked first, so that no other transaction adds or leases work of the task, and all earlier
        changes are visible.

        :param state: new state of the unfinished work
        :param by: end the task only if its deadline is not later; None to end it in any case
        :param also: further values of the task's columns
        """
        active = select(tasks.c.id).where(tasks.c.id == number, tasks.c.status == "ACTIVE")
        if by is not None:
            active = active.where(tasks.c.deadline <= by)
        if (await self._connection.execute(active.with_for_update())).scalar() is None:
            return False
        left = and_(work.c.task_id == number, work.c.state.in_(("pending", "leased")))
        ended = update(work).where(left).values(state=state, worker=None, finished_at=now)
        count = (await self._connection.execute(ended)).rowcount
        column = {"canceled": tasks.c.canceled_work, "failed": tasks.c.failed}.get(state, tasks.c.expired)
        values = {"status": "FAILED", "completed_at": now, "error_code": code, "error": one_line(error), "waits": ""}
        return await self.change(number, **values, **also, untold=now, unswept=now, **{column.name: column + count})

    async def rise(self, number: str, **counts: int) -> None:
        """Increase counters of a task."""
        values = {name: tasks.c[name] + count for name, count in counts.items()}
        await self._connection.execute(update(tasks).where(tasks.c.id == number).values(values))

    async def finish(self, numbers: Collection[str], now: float) -> list[Task]:
        """End the active tasks among these that have no unfinished work; return them."""
        over = tasks.c.total == tasks.c.succeeded + tasks.c.failed + tasks.c.skipped
        ended = update(tasks).where(tasks.c.id.in_(sorted(numbers)), tasks.c.status == "ACTIVE", over)
        bad = tasks.c.failed > 0
        lost = select(work.c.id).where(work.c.task_id == tasks.c.id, work.c.lost > 0).correlate(tasks).exists()
        untidy = or_(bad, tasks.c.skipped > 0, lost)
        status = {"status": case((bad, "FAILED"), else_="SUCCEEDED"), "unswept": case((untidy, now))}
        values = ended.values(completed_at=now, waits="", untold=now, **status, **WELL)
        rows = await self._connection.execute(values.returning(tasks.c.id, tasks.c.failed))
        finished = []
        for row in rows.all():
            if row.failed:
                await self._blame(row.id)
            task = await self.one(row.id)
            assert task is not None
            finished.append(task)
        return finished

    async def _blame(self, number: str) -> None:
        """Set a task's error to the error of its first failed work item."""
        failed = select(work.c.error_code, work.c.error).where(work.c.task_id == number, work.c.state == "failed")
        first = (await self._connection.execute(failed.order_by(work.c.id).limit(1))).one()
        await self._connection.execute(
            update(tasks).where(tasks.c.id == number).values(error_code=first.error_code, error=first.error)
        )

    async def expired(self, now: float) -> list[str]:
        """Return active tasks whose deadline has passed."""
        late = select(tasks.c.id).where(tasks.c.status == "ACTIVE", tasks.c.deadline <= now)
        return list((await self._connection.execute(late)).scalars())

    async def stopped(self, numbers: Collection[str]) -> set[str]:
        """Return the tasks that workers must stop: finished, canceled and paused ones, and those held by a rule."""
        left = or_(tasks.c.status != "ACTIVE", tasks.c.paused.is_not(None), HELD)
        rows = await self._connection.execute(select(tasks.c.id).where(tasks.c.id.in_(sorted(numbers)), left))
        return set(rows.scalars())

    async def progress(self, numbers: Collection[str], now: float, before: float) -> None:
        """Add a progress event to each task that has had no event since `before`."""
        reported = select(events.c.id).where(events.c.task_id == tasks.c.id, events.c.at > before).exists()
        moved = (tasks.c.id, tasks.c.bytes_transferred, tasks.c.started_at)
        quiet = select(*moved).where(tasks.c.id.in_(sorted(numbers)), tasks.c.started_at < before, ~reported)
        for row in (await self._connection.execute(quiet)).all():
            seconds = now - row.started_at
            rate = row.bytes_transferred * 8 / 1e6 / seconds
            details = {
                "bytes_transferred": row.bytes_transferred,
                "duration": round(seconds, 1),
                "mbps": round(rate, 2),
            }
            await self.note([(row.id, Event(now, "PROGRESS", False, "progress", orjson.dumps(details).decode()))])

    async def note(self, happened: Sequence[tuple[str, Event]]) -> None:
        """Store the events of tasks."""
        if happened:
            shown = [(number, event._replace(details=one_line(event.details))) for number, event in happened]
            rows = [{"task_id": number, **event._asdict()} for number, event in shown]
            await self._connection.execute(events.insert(), rows)

    async def events(self, number: str, errors: bool | None, limit: int, offset: int) -> tuple[list[Event], int]:
        """Return a page of a task's events, the newest first, and the number of all that match.

        :param errors: True for only errors, False for only other events, None for all events
        """
        where = and_(events.c.task_id == number, literal(True) if errors is None else events.c.is_error.is_(errors))
        page = select(events).where(where).order_by(events.c.id.desc()).limit(limit).offset(offset)
        found = [Event.of(row) for row in await self._connection.execute(page)]
        total = await self._connection.execute(select(func.count()).select_from(events).where(where))
        return found, total.scalar_one()

    async def done(
        self, number: str, state: str, after: int, limit: int, kinds: Sequence[WorkKind] = get_args(WorkKind)
    ) -> list[FinishedWork]:
        """Return work items of a task by kind and state, with ids above `after`, in the order of ids."""
        columns = [work.c[name] for name in FinishedWork._fields]
        where = (work.c.task_id == number, work.c.state == state, work.c.id > after, work.c.kind.in_(kinds))
        rows = await self._connection.execute(select(*columns).where(*where).order_by(work.c.id).limit(limit))
        return [FinishedWork(*row) for row in rows]


COUNTERS = [column.name for column in tasks.c if isinstance(column.type, BigInteger) and not column.nullable]


def _conditions(task_filter: TaskFilter) -> list[Any]:
    columns = tasks.c
    chosen: list[Any] = [literal(True)]
    for column, values in (
        (columns.kind, task_filter.kinds),
        (columns.status, task_filter.statuses),
        (columns.id, task_filter.ids),
    ):
        if values is not None:
            chosen.append(column.in_(list(values)))
    if task_filter.owner is not None:
        chosen.append(columns.owner == task_filter.owner)
    if task_filter.collection is not None:
        sides = (task_filter.side,) if task_filter.side else ("source", "destination")
        chosen.append(or_(*(columns[side] == task_filter.collection for side in sides)))
    if task_filter.faults:
        chosen.append(columns.faults >= task_filter.faults)
    if task_filter.before is not None:
        at, number = task_filter.before
        chosen.append(or_(columns.requested_at < at, and_(columns.requested_at == at, columns.id > number)))
    if task_filter.paused is not None:
        paused = or_(columns.paused.is_not(None), HELD)
        chosen.append(paused if task_filter.paused else ~paused)
    for column, (since, until) in (
        (columns.requested_at, task_filter.requested),
        (columns.completed_at, task_filter.completed),
    ):
        chosen += [column >= since] if since is not None else []
        chosen += [column < until] if until is not None else []
    likes = [(_labelled(pattern), fits) for pattern, fits in task_filter.labels]
    chosen += [~like for like, fits in likes if not fits]
    if to_fit := [like for like, fits in likes if fits]:
        chosen.append(or_(*to_fit))
    return chosen


def _labelled(pattern: str) -> ColumnElement[bool]:
    label = func.coalesce(tasks.c.label, "")
    if not pattern.startswith("~"):
        return label == pattern.removeprefix("=")
    return func.lower(label).like(func.lower(_like(pattern.removeprefix("~"))), escape="\\")


def _like(pattern: str) -> str:
    escaped = pattern.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
    return escaped.replace("*", "%")
