"""One task: its state, progress, events, transfers and files."""

import time
from collections.abc import Sequence
from typing import Annotated, NamedTuple
from uuid import UUID

import orjson
from pydantic import Field

from broker.models.base import Wire
from broker.models.decisions import DecisionSummary
from broker.models.standstills import PAUSES
from broker.models.submissions import TaskRecord
from broker.models.tasks import Event
from broker.reports import decisions as log
from broker.reports.archive import Archive, Scope
from broker.reports.charts import gantt, series
from broker.reports.document import Column, Fact, Figure, Report, Table, Value
from broker.reports.tasks import owned, recorded
from broker.storage import decisions as stored
from broker.storage.tasks import FinishedWork, TaskStore

__all__ = ["TaskQuery", "make"]

SHOWN = 200
"""Most rows of each table."""
EVENTS = (
    Column("at", "When", "moment"),
    Column("code", "What"),
    Column("error", "Fault"),
    Column("details", "Details"),
)
FILES = (
    Column("source", "From"),
    Column("destination", "To"),
    Column("size", "Size", "bytes"),
    Column("state", "State"),
    Column("checksum", "Checksum"),
    Column("error", "Error"),
    Column("finished_at", "Ended", "moment"),
)
OPTIONS = (Column("option", "Option"), Column("value", "Value"))
PROGRESS = (Column("at", "When", "moment"), Column("bytes", "Moved", "bytes"))
SPANS = (
    Column("thing", "What"),
    Column("begin", "Begin", "moment"),
    Column("end", "End", "moment"),
    Column("outcome", "Outcome"),
)


class TaskQuery(Wire):
    """The id of the task."""

    id: Annotated[UUID, Field(json_schema_extra={"hidden": True})]


class TaskData(NamedTuple):
    """The data of a task's report; each file has its state."""

    record: TaskRecord
    events: list[Event]
    files: list[tuple[str, FinishedWork]]
    transfers: list[DecisionSummary]


async def make(archive: Archive, scope: Scope, query: TaskQuery) -> Report:
    """Create the report.

    :raises NoTask: when there is no such task, or the caller may not see it
    """
    now = time.time()
    found = await _found(archive, scope, query.id, now)
    record, transfers = found.record, found.transfers
    note = "" if transfers else "No transfer of this task was large or had several sources."
    return Report(
        "task",
        f"Task {record.label or record.id}",
        "The task's state and events; large transfers link to their ranges.",
        now,
        _facts(record),
        [_progress(found), _spans(transfers)],
        [
            Table("transfers", "Transfers", log.COLUMNS, [log.row(each) for each in transfers], note),
            _events(found.events),
            _files(found.files),
            _options(record),
        ],
    )


async def _found(archive: Archive, scope: Scope, number: UUID, now: float) -> TaskData:
    async with archive.database.read() as connection:
        task = await owned(connection, scope, number)
        (record,) = await recorded(connection, [task], now)
        tasks = TaskStore(connection)
        events, _ = await tasks.events(task.id, None, SHOWN, 0)
        files = [
            (state, each)
            for state in ("failed", "skipped", "succeeded")
            for each in await tasks.done(task.id, state, 0, SHOWN)
        ]
        page = await stored.DecisionStore(connection).page(stored.DecisionFilter(task.owner, task=task.id), SHOWN)
    return TaskData(record, events, files[:SHOWN], page.decisions)


def _facts(record: TaskRecord) -> list[Fact]:
    over = record.completed_at
    error = record.error and f"{record.error.code}: {record.error.message}"
    done = record.bytes_transferred / record.bytes if record.bytes else None
    stands = record.standstill
    paused = stands is not None and stands.code in PAUSES
    return [
        Fact("State", "paused" if paused else record.status, "text", str(stands) if stands else error or ""),
        Fact("Owner", record.owner, "text"),
        Fact("From", record.source.name or record.source.id, "text"),
        *([Fact("To", record.destination.name or record.destination.id, "text")] if record.destination else []),
        Fact("Requested", record.requested_at, "moment", f"number {record.id}"),
        Fact("Began", record.started_at, "moment"),
        Fact("Ended", over, "moment"),
        Fact("Deadline", record.deadline, "moment"),
        Fact("Moved", record.bytes_transferred, "bytes", "" if over else "of the bytes known so far"),
        Fact("Done", done, "share"),
        Fact("Rate", record.rate, "rate", "on average"),
        Fact("Files", record.files, "count", f"{record.files_transferred:,} were transferred"),
        Fact("Skipped", record.files_skipped, "count", "files that existed already"),
        Fact("Unverified", record.files_unverified, "count", "files that were copied without verification"),
        Fact("Not cleared", record.folders_not_cleared, "count", "directories in which no extra files were deleted"),
        Fact("Faults", record.faults, "count", f"{record.work['retrying']:,} are being retried"),
        Fact("Failed", record.work["failed"], "count"),
    ]


def _progress(found: TaskData) -> Figure:
    """Return the figure of progress, from the task's start, its events PROGRESS and its end."""
    rows: list[Sequence[Value]] = [
        (each.at, _moved(each)) for each in reversed(found.events) if each.code == "PROGRESS"
    ]
    record = found.record
    if record.started_at is not None:
        rows.insert(0, (record.started_at, 0))
    if record.completed_at is not None:
        rows.append((record.completed_at, record.bytes_transferred))
    return series("progress", "Bytes moved over time", Table("progress", "Progress", PROGRESS, rows), "at", "bytes")


def _moved(event: Event) -> int | None:
    moved: int | None = orjson.loads(event.details).get("bytes_transferred")
    return moved


def _spans(transfers: Sequence[DecisionSummary]) -> Figure:
    rows = [(each.thing, each.at, each.at + each.seconds, each.outcome) for each in reversed(transfers)]
    table = Table("spans", "Large transfers", SPANS, rows)
    return gantt("transfers", "Large transfers over time", table, "thing", "begin", "end", "outcome")


def _events(events: Sequence[Event]) -> Table:
    rows = [(each.at, each.code, "yes" if each.is_error else "", each.details) for each in events]
    note = f"The newest {SHOWN}." if len(rows) == SHOWN else ""
    return Table("events", "Events", EVENTS, rows, note)


def _files(files: Sequence[tuple[str, FinishedWork]]) -> Table:
    rows = [
        (
            *(each.source, each.destination, each.size, state, each.checksum),
            each.error and f"{each.error_code}: {each.error}",
            each.finished_at,
        )
        for state, each in files
    ]
    note = f"The first {SHOWN}; failed files come first." if len(rows) == SHOWN else ""
    return Table("files", "Files", FILES, rows, note or ("" if rows else "No file is finished yet."))


def _options(record: TaskRecord) -> Table:
    rows = [(name, str(value)) for name, value in record.options.model_dump(exclude_defaults=True).items()]
    return Table("options", "Options", OPTIONS, rows, "" if rows else "All options have their defaults.")
