"""The table of tasks under way."""

import time
from typing import NamedTuple

from broker.models.submissions import TaskRecord
from broker.models.tasks import Task
from broker.reports.addresses import task_page
from broker.reports.archive import Archive, Scope
from broker.reports.document import Column, Table, Value
from broker.storage.collections import CollectionStore
from broker.storage.tasks import TaskFilter, TaskStore

__all__ = ["Underway", "underway"]

SHOWN = 50
COLUMNS = (
    Column("task", "Task", link="address"),
    Column("address", "Address"),
    Column("owner", "Owner"),
    Column("source", "From"),
    Column("destination", "To"),
    Column("state", "State"),
    Column("bytes_done", "Moved", "bytes"),
    Column("bytes", "Known so far", "bytes"),
    Column("files_done", "Files done", "count"),
    Column("files", "Files", "count"),
    Column("rate", "Rate now", "rate"),
    Column("seconds_left", "Time left", "seconds"),
    Column("faults", "Faults", "count"),
)


class Underway(NamedTuple):
    """The number of tasks under way, and a table of the newest."""

    total: int
    table: Table


async def underway(archive: Archive, scope: Scope) -> Underway:
    """Return the tasks under way, the newest first, with their rates, as far as these were measured a moment ago."""
    wanted = TaskFilter(owner=scope.subject, statuses=["ACTIVE"])
    async with archive.database.read() as connection:
        page = await TaskStore(connection).page(wanted, [("request_time", True)], SHOWN, 0)
        ends = {number for task in page.tasks for number in (task.source, task.destination) if number}
        collections = {str(each.id): each for each in await CollectionStore(connection).all(ends)} if ends else {}
    rates, now = archive.pace.rates(page.tasks), time.time()
    rows = [
        _row(task, TaskRecord.of(task, collections, now, rates.get(task.id, 0.0)), rates.get(task.id))
        for task in page.tasks
    ]
    if page.total > len(rows):
        note = f"The newest {len(rows)} of {page.total:,}."
    else:
        note = "" if rows else "No task is under way."
    return Underway(page.total, Table("tasks", "Tasks under way", COLUMNS, rows, note))


def _row(task: Task, record: TaskRecord, rate: float | None) -> tuple[Value, ...]:
    return (
        task.label or task.id,
        task_page(task.id),
        task.owner,
        record.source.name or task.source,
        record.destination.name or task.destination if record.destination else None,
        _state(task),
        task.bytes_transferred,
        task.bytes,
        task.files_transferred + task.files_skipped,
        task.files,
        rate,
        record.seconds_left,
        task.faults,
    )


def _state(task: Task) -> str:
    if task.paused is not None:
        return f"paused: {task.paused}"
    if task.waits:
        return f"waits: {task.waits}"
    return "waits for its turn" if task.started_at is None else "under way"
