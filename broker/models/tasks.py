"""Tasks: requests, the work items into which they are divided, and their results."""

from typing import Annotated, Any, Literal, NamedTuple, get_args
from uuid import UUID

from pydantic import Field

from broker.models.base import Moment, Wire
from broker.models.callers import Role

__all__ = [
    "Details",
    "Event",
    "FilterRule",
    "Item",
    "NewTask",
    "Options",
    "Status",
    "Task",
    "TaskKind",
    "Work",
    "WorkKind",
    "WorkState",
    "moves_bytes",
]

TaskKind = Literal["TRANSFER", "DELETE"]
Status = Literal["ACTIVE", "INACTIVE", "SUCCEEDED", "FAILED"]
DeadlineCode = Literal["DEADLINE_HOLDS", "DEADLINE_AT_RISK", "DEADLINE_LOST"]
"""Codes of the events that tell how likely a task's deadline is kept."""
DEADLINE_CODES: tuple[DeadlineCode, ...] = get_args(DeadlineCode)
WorkKind = Literal["look", "expand", "prune", "copy", "link", "delete", "remove"]
"""Actions of work items.

- `look`: find out whether an item is a file or a directory
- `expand`: list a directory, and plan its entries
- `prune`: find entries of a destination directory that the source directory lacks
- `copy`: copy a file
- `link`: create a symbolic link
- `delete`: delete a file or link
- `remove`: remove a directory, which is empty by then
"""
WorkState = Literal["pending", "leased", "succeeded", "skipped", "failed", "canceled", "expired"]
"""States of work items; `skipped`: failed, but the task continues without it."""


class FilterRule(Wire):
    """A filter rule. The first rule whose pattern matches a name decides; a name that matches none is included."""

    method: Literal["include", "exclude"] = "exclude"
    name: Annotated[str, Field(max_length=1000)]
    type: Literal["file", "dir"] | None = None


class Options(Wire):
    """The options of a task, with the names and meanings of Globus; `dry_run`, not in Globus, changes nothing."""

    sync_level: Annotated[int, Field(ge=0, le=3)] | None = None
    verify_checksum: bool = True
    preserve_timestamp: bool = False
    encrypt_data: bool = False
    skip_source_errors: bool = False
    fail_on_quota_errors: bool = False
    delete_destination_extra: bool = False
    dry_run: bool = False
    recursive_symlinks: Literal["ignore", "keep", "copy"] = "ignore"
    filter_rules: tuple[FilterRule, ...] = ()
    recursive: bool = False
    ignore_missing: bool = False
    interpret_globs: bool = False
    notify_on_succeeded: bool = True
    notify_on_failed: bool = True
    notify_on_inactive: bool = True
    perf_cc: Annotated[int, Field(ge=1, le=64)] | None = None
    perf_p: Annotated[int, Field(ge=1, le=64)] | None = None
    perf_pp: Annotated[int, Field(ge=1, le=1000)] | None = None


class Item(Wire):
    """One item of a submission. `recursive` None means that it may be a file or a directory."""

    source: str
    destination: str = ""
    recursive: bool | None = None
    symlink: bool = False
    checksum: str | None = None
    """Expected checksum, ALGORITHM:HEX; without HEX, the algorithm to verify the file with."""


class NewTask(Wire):
    """A task to run, validated and with normalised paths.

    `deadline_asked` is true if its owner has chosen the deadline. `role` is the role of its owner, `token_id` the
    number of the token that submitted it; workers check both again.
    """

    owner: str
    role: Role = "transfer"
    token_id: int | None = None
    kind: TaskKind
    submission_id: UUID
    source: UUID
    destination: UUID | None = None
    label: str | None = None
    deadline: Moment
    deadline_asked: bool = False
    priority: int = 0
    queue: str = ""
    options: Options = Options()
    items: tuple[Item, ...]


def moves_bytes(kind: TaskKind, options: Options) -> bool:
    """Return whether a task transfers files, so that a deadline has a probability."""
    return kind == "TRANSFER" and not options.dry_run


class Details(NamedTuple):
    """The details of a work item, besides its paths.

    - `checksum`: expected checksum, or `ALGORITHM:`, the algorithm to verify the file with
    - `link`: target of the symbolic link to create
    - `found`: kind of the entry in the listing
    - `compare`: whether to copy the file only if its checksum differs
    - `above`: server's ids of this directory and its parents, if links are followed
    - `linked`: whether the path is the target of a symbolic link at the destination
    - `unique`, `within`: server's ids of the listed entry, and of its directory
    - `twin`: another name in the same directory that the destination does not distinguish from this one
    """

    modified: float | None = None
    checksum: str | None = None
    link: str | None = None
    recursive: bool | None = None
    depth: int = 0
    found: str | None = None
    compare: bool = False
    above: tuple[str, ...] = ()
    linked: bool = False
    unique: str | None = None
    within: str | None = None
    twin: str | None = None

    @property
    def stated_checksum(self) -> str | None:
        """The expected checksum of the file, ALGORITHM:HEX; None if not given."""
        return None if self.checksum is None or self.checksum.endswith(":") else self.checksum


class Work(NamedTuple):
    """A work item that a worker has leased."""

    id: int
    task_id: str
    kind: WorkKind
    phase: int
    source: str
    destination: str
    size: int
    details: Details
    attempt: int
    lost: int = 0
    error_code: str | None = None
    received: tuple[tuple[int, int], ...] = ()
    leases: int = 0

    @property
    def lease(self) -> tuple[int, int]:
        """The unique id of this lease: the work item's id, and the number of its leases so far."""
        return self.id, self.leases


class Task(NamedTuple):
    """A task, with all columns of its table, and what other tables say about it.

    :param error_side: collection at which the last error arose: `source`, `destination`, or empty if unknown
    :param error_since: when this error began, in seconds since the epoch
    :param rule_collection: collection whose pause rule holds the task; None if none does
    :param rule_since: when this rule was last changed
    :param open_lanes: number of lanes in which workers run the task now
    :param has_worker: whether a worker is running that may run the task
    """

    id: str
    owner: str
    submission_id: str
    kind: TaskKind
    status: Status
    label: str | None
    source: str
    destination: str | None
    options: Options
    queue: str
    priority: int
    deadline: float
    deadline_chance: float | None
    deadline_holds_at: float | None
    requested_at: float
    started_at: float | None
    completed_at: float | None
    paused: str | None
    canceled: str | None
    canceled_by_admin: bool
    cancel_message: str | None
    waits: str
    error_code: str | None
    error: str | None
    total: int
    succeeded: int
    failed: int
    skipped: int
    canceled_work: int
    expired: int
    retrying: int
    files: int
    directories: int
    symlinks: int
    bytes: int
    files_skipped: int
    files_transferred: int
    bytes_transferred: int
    bytes_checksummed: int
    faults: int
    files_unverified: int
    folders_not_cleared: int
    error_side: str
    error_since: float | None
    rule_collection: str | None
    rule_message: str | None
    rule_since: float | None
    open_lanes: int
    has_worker: bool

    @property
    def pending(self) -> int:
        """The number of unfinished work items."""
        return self.total - self.succeeded - self.failed - self.skipped - self.canceled_work - self.expired


class Event(NamedTuple):
    """An event of a task; `details` is text, JSON for STARTED and PROGRESS."""

    at: float
    code: str
    is_error: bool
    description: str
    details: str

    @classmethod
    def of(cls, row: Any) -> "Event":
        """Return the event of a database row."""
        return cls(row.at, row.code, row.is_error, row.description, row.details)
