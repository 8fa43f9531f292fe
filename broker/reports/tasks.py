"""Tasks that the caller may see, the newest first, and the table of running tasks."""

import time
from collections.abc import Sequence
from typing import Annotated, NamedTuple
from urllib.parse import urlencode
from uuid import UUID

from pydantic import Field
from sqlalchemy.ext.asyncio import AsyncConnection

from broker.errors import NoTask
from broker.models.base import Wire
from broker.models.collections import Collection
from broker.models.names import Remark, Who
from broker.models.standstills import PAUSES
from broker.models.submissions import TaskRecord
from broker.models.tasks import Status, Task
from broker.reports.archive import Archive, Scope
from broker.reports.document import Column, Report, ReportLink, Table, Value
from broker.reports.queries import Day, task_page
from broker.storage import tasks as stored
from broker.storage.collections import CollectionStore

__all__ = ["TasksQuery", "Underway", "make", "owned", "recorded", "underway"]

PAGE = 100
NEWEST = [("request_time", True)]
COLUMNS = (
    Column("task", "Task", link="address"),
    Column("address", "Page of the task"),
    Column("status", "State"),
    Column("owner", "Owner"),
    Column("source", "From"),
    Column("destination", "To"),
    Column("requested_at", "Requested", "moment"),
    Column("seconds", "Took", "seconds"),
    Column("files", "Files", "count"),
    Column("files_transferred", "Transferred", "count"),
    Column("bytes_transferred", "Moved", "bytes"),
    Column("rate", "Rate", "rate"),
    Column("faults", "Faults", "count"),
    Column("error", "Error"),
)
UNDERWAY_SHOWN = 50
UNDERWAY_COLUMNS = (
    Column("task", "Task", link="address"),
    Column("address", "Address"),
    Column("owner", "Owner"),
    Column("source", "From"),
    Column("destination", "To"),
    Column("state", "State"),
    Column("bytes_done", "Moved", "bytes"),
    Column("bytes", "Known size", "bytes"),
    Column("files_done", "Files done", "count"),
    Column("files", "Files", "count"),
    Column("rate", "Rate now", "rate"),
    Column("seconds_left", "Time left", "seconds"),
    Column("faults", "Faults", "count"),
)


class TasksQuery(Wire):
    """Search parameters: state, owner (for admins), label (`*` matches any characters), and period of the request.

    `before` is the id of a task, for a page of older ones.
    """

    status: Annotated[Status | None, Field(title="State")] = None
    owner: Annotated[Who | None, Field(description="For admins.")] = None
    label: Annotated[Remark | None, Field(description="* matches any characters.")] = None
    since: Day | None = None
    until: Day | None = None
    before: Annotated[UUID | None, Field(json_schema_extra={"hidden": True})] = None


async def make(archive: Archive, scope: Scope, query: TasksQuery) -> Report:
    """Create the report.

    :raises NoTask: when the task `before` does not exist, or the caller may not see it
    """
    now = time.time()
    async with archive.database.read() as connection:
        last = await owned(connection, scope, query.before) if query.before else None
        task_filter = stored.TaskFilter(
            owner=query.owner if scope.subject is None else scope.subject,
            statuses=query.status and [query.status],
            labels=[(f"~{query.label}", True)] if query.label else [],
            requested=(query.since, query.until),
            before=last and (last.requested_at, last.id),
        )
        page = await stored.TaskStore(connection).page(task_filter, NEWEST, PAGE, 0)
        records = await recorded(connection, page.tasks, now)
    note = "" if records else "No task matches."
    older = [ReportLink("Older ones", _older(query, records[-1].id))] if len(records) == PAGE else []
    lead = "Submitted tasks, the newest first; each links to its report."
    table = Table("tasks", "Tasks", COLUMNS, [_row(each, now) for each in records], note)
    return Report("tasks", "Tasks", lead, now, tables=[table], links=older)


async def owned(connection: AsyncConnection, scope: Scope, number: UUID) -> Task:
    """Return a task.

    :raises NoTask: when there is no such task, or the caller may not see it
    """
    task = await stored.TaskStore(connection).one(str(number))
    if task is None or scope.subject not in (None, task.owner):
        raise NoTask(f"there is no task {number}", "choose one from the list of your tasks")
    return task


async def recorded(connection: AsyncConnection, tasks: Sequence[Task], now: float) -> list[TaskRecord]:
    """Return the records of tasks, with the names of their collections."""
    named = await _collections(connection, tasks)
    return [TaskRecord.of(each, named, now) for each in tasks]


async def _collections(connection: AsyncConnection, tasks: Sequence[Task]) -> dict[str, Collection]:
    """Return the collections of tasks by id."""
    ends = {number for task in tasks for number in (task.source, task.destination) if number}
    return {str(each.id): each for each in await CollectionStore(connection).all(ends)} if ends else {}


def _older(query: TasksQuery, last: str) -> str:
    return f"tasks?{urlencode({**query.model_dump(exclude_none=True), 'before': last})}"


def _row(each: TaskRecord, now: float) -> tuple[Value, ...]:
    to = each.destination
    return (
        each.label or each.id,
        task_page(each.id),
        "paused" if each.standstill and each.standstill.code in PAUSES else each.status,
        each.owner,
        each.source.name or each.source.id,
        (to.name or to.id) if to else None,
        each.requested_at,
        None if each.started_at is None else (each.completed_at or now) - each.started_at,
        each.files,
        each.files_transferred,
        each.bytes_transferred,
        each.rate,
        each.faults,
        f"{each.error.code}: {each.error.message}" if each.error else None,
    )


class Underway(NamedTuple):
    """The number of running tasks, and a table of the newest ones."""

    total: int
    table: Table


async def underway(archive: Archive, scope: Scope) -> Underway:
    """Return the running tasks, the newest first, with their current rates as far as they are measured."""
    task_filter = stored.TaskFilter(owner=scope.subject, statuses=["ACTIVE"])
    async with archive.database.read() as connection:
        page = await stored.TaskStore(connection).page(task_filter, NEWEST, UNDERWAY_SHOWN, 0)
        collections = await _collections(connection, page.tasks)
    rates, now = archive.pace.rates(page.tasks), time.time()
    rows = [
        _underway_row(task, TaskRecord.of(task, collections, now, rates.get(task.id, 0.0)), rates.get(task.id))
        for task in page.tasks
    ]
    if page.total > len(rows):
        note = f"The newest {len(rows)} of {page.total:,}."
    else:
        note = "" if rows else "No task is running."
    return Underway(page.total, Table("tasks", "Running tasks", UNDERWAY_COLUMNS, rows, note))


def _underway_row(task: Task, record: TaskRecord, rate: float | None) -> tuple[Value, ...]:
    return (
        task.label or task.id,
        task_page(task.id),
        task.owner,
        record.source.name or task.source,
        record.destination.name or task.destination if record.destination else None,
        _underway_state(task, record),
        task.bytes_transferred,
        task.bytes,
        task.files_transferred + task.files_skipped,
        task.files,
        rate,
        record.seconds_left,
        task.faults,
    )


def _underway_state(task: Task, record: TaskRecord) -> str:
    if task.paused is not None:
        return f"paused: {task.paused}"
    if task.waits:
        return f"waits: {task.waits}"
    if record.standstill and record.standstill.code != "TURN":
        return record.standstill.message
    return "waiting for its turn" if task.started_at is None else "under way"
