"""Tasks in the broker's own API: submissions, and records of tasks, events and files."""

from collections.abc import Mapping
from typing import Annotated, Literal, Self
from uuid import UUID

from pydantic import Field, StringConstraints, model_validator

from broker.models.base import Count, Moment, Seconds, Size, Wire
from broker.models.collections import Collection, Title
from broker.models.standstills import Standstill, standstill
from broker.models.tasks import Event, FilterRule, Item, Options, Status, Task, TaskKind

__all__ = [
    "LINE",
    "Accepted",
    "CollectionReference",
    "FileRecord",
    "Label",
    "NewItem",
    "NewOptions",
    "Submission",
    "TaskError",
    "TaskEvent",
    "TaskRecord",
]

Path = Annotated[str, Field(max_length=4096)]
LINE = r"^[^\x00-\x1f\x7f]*$"
Label = Annotated[str, StringConstraints(min_length=1, max_length=128, pattern=LINE)]
"""A line of text by which users recognise a task."""
MOST = 100_000


class NewItem(Item):
    """A file or a directory of a submission; a deletion has only a `source`."""

    source: Path
    destination: Path = ""
    checksum: Annotated[str, StringConstraints(pattern=r"^[a-z0-9]{1,20}:[0-9a-f]{1,256}$")] | None = None


class NewOptions(Options):
    """The options of a submitted task."""

    filter_rules: Annotated[tuple[FilterRule, ...], Field(max_length=1000)] = ()


class Submission(Wire):
    """A task to run. Collections are given by name or id; the default deadline is a day from now."""

    submission_id: UUID
    kind: TaskKind = "TRANSFER"
    source: Title
    destination: Title | None = None
    items: Annotated[tuple[NewItem, ...], Field(min_length=1, max_length=MOST, fail_fast=True)]
    options: NewOptions = NewOptions()
    label: Label | None = None
    deadline: Moment | None = None
    priority: Annotated[int, Field(ge=-100, le=100)] = 0

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if (self.destination is None) == (self.kind == "TRANSFER"):
            raise ValueError("a TRANSFER needs a destination, and a DELETE must not have one")
        return self


class Accepted(Wire):
    """The result of a submission; `new` is false if the same task was submitted before."""

    id: str
    new: bool


class CollectionReference(Wire):
    """One of the collections of a task; `name` is None if the collection no longer exists."""

    id: str
    name: str | None


class TaskError(Wire):
    """The error of a task or of one of its files."""

    code: str
    message: str


class TaskRecord(Wire):
    """The state of a task at one moment.

    - `bytes`, `files`: totals known so far, which grow while directories are read
    - `rate`: bytes per second, current or average
    - `deadline_chance`: probability that a deadline that its owner has chosen is kept; None if unknown
    - `deadline_holds_at`: when it ends with a probability of 95 %; None if unknown
    - `waits`: reason why the task waits for a lane or a pause rule; empty if it does not
    - `standstill`: why the task does not move, and what to do; null if it does
    - `error`: error that made the task fail, or that it currently retries
    - `work`: numbers of work items by state
    """

    id: str
    owner: str
    kind: TaskKind
    status: Status
    label: str | None
    source: CollectionReference
    destination: CollectionReference | None
    options: Options
    priority: int
    requested_at: Moment
    started_at: Moment | None
    completed_at: Moment | None
    deadline: Moment
    deadline_chance: float | None
    deadline_holds_at: Moment | None
    paused: str | None
    waits: str
    standstill: Standstill | None
    error: TaskError | None
    files: Count
    files_transferred: Count
    files_skipped: Count
    files_unverified: Count
    folders_not_cleared: Count
    directories: Count
    symlinks: Count
    bytes: Size
    bytes_transferred: Size
    bytes_checksummed: Size
    rate: float
    seconds_left: Seconds | None
    faults: Count
    work: dict[Literal["total", "pending", "retrying", "succeeded", "failed", "skipped", "canceled", "expired"], Count]

    @classmethod
    def of(cls, task: Task, collections: Mapping[str, Collection], now: float, rate: float | None = None) -> Self:
        """Return the record of a task.

        :param collections: collections of the task that still exist, by their ids
        :param now: seconds since the epoch
        :param rate: current rate in bytes per second; for None, and for a finished task, the average rate is used
        """
        over = task.completed_at is not None
        if over or rate is None:
            rate = _average(task, now)
        same = {name: getattr(task, name) for name in cls.model_fields if name in Task._fields}
        left = max(0, task.bytes - task.bytes_transferred)
        stands = standstill(task, {number: found.name for number, found in collections.items()}, now)
        changed = {
            "source": _end(task.source, collections),
            "destination": task.destination and _end(task.destination, collections),
            "waits": _waits(task, stands),
            "standstill": stands,
            "error": TaskError(code=task.error_code or "", message=task.error or "") if task.error_code else None,
            "rate": round(rate, 1),
            "seconds_left": round(left / rate, 1) if rate and left and not over else None,
            "work": _work(task),
        }
        return cls.model_construct(**{**same, **changed})


def _waits(task: Task, stands: Standstill | None) -> str:
    """Return what holds a task: a pause rule, or the lack of a lane."""
    if stands and stands.code == "PAUSED_BY_RULE":
        return stands.message
    return "" if task.completed_at is not None else task.waits


def _average(task: Task, now: float) -> float:
    seconds = (task.completed_at or now) - (task.started_at or task.requested_at)
    return task.bytes_transferred / seconds if seconds > 0 else 0.0


def _end(number: str, collections: Mapping[str, Collection]) -> CollectionReference:
    found = collections.get(number)
    return CollectionReference.model_construct(id=number, name=found and found.name)


def _work(task: Task) -> dict[str, int]:
    names = ("total", "pending", "retrying", "succeeded", "failed", "skipped")
    return {name: getattr(task, name) for name in names} | {"canceled": task.canceled_work, "expired": task.expired}


class TaskEvent(Wire):
    """An event of a task."""

    at: Moment
    code: str
    is_error: bool
    description: str
    details: str

    @classmethod
    def of(cls, event: Event) -> Self:
        """Return the record of a stored event."""
        return cls.model_construct(**event._asdict())


class FileRecord(Wire):
    """A finished file, or another failed work item; `checksum` is ALGORITHM:HEX."""

    id: int
    kind: str
    source: str
    destination: str
    size: Size
    checksum: str | None
    error: TaskError | None
    finished_at: Moment | None
