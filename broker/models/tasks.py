"""Tasks: what is asked for, what it is cut into, and what became of it."""

from typing import Annotated, Any, Literal, NamedTuple
from uuid import UUID

from pydantic import Field

from broker.models.access import Role
from broker.models.base import Moment, Wire

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
]

TaskKind = Literal["TRANSFER", "DELETE"]
Status = Literal["ACTIVE", "INACTIVE", "SUCCEEDED", "FAILED"]
WorkKind = Literal["look", "expand", "prune", "copy", "link", "delete", "remove"]
"""What a piece of work does: finds out what an item is; goes through a folder; finds what only
the destination of one has; copies a file; makes a link; deletes
what is no folder; removes a folder that is empty by then.
"""
WorkState = Literal["pending", "leased", "succeeded", "skipped", "failed", "canceled", "expired"]
"""`skipped`: it failed, and the task goes on without it."""


class FilterRule(Wire):
    """The first rule whose pattern fits a name decides; what none fits is included."""

    method: Literal["include", "exclude"] = "exclude"
    name: Annotated[str, Field(max_length=1000)]
    type: Literal["file", "dir"] | None = None


class Options(Wire):
    """How a task is done. Names and meanings are Globus's; a `dry_run`, which Globus does not have, changes nothing."""

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
    """One line of a submission. `recursive` None: whatever it turns out to be."""

    source: str
    destination: str = ""
    recursive: bool | None = None
    symlink: bool = False
    checksum: str | None = None
    """ALGORITHM:HEX that the file must have, as its owner says; without HEX, by what it is to be verified."""


class NewTask(Wire):
    """A task to be done; checked, with paths that are normalised.

    `role` is that of its owner, `token_id` the number of the token with which it was submitted: both are asked again.
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
    priority: int = 0
    queue: str = ""
    options: Options = Options()
    items: tuple[Item, ...]


class Details(NamedTuple):
    """What is known of a piece of work beside its paths.

    `checksum` is what the file must have, or `ALGORITHM:` by which it is verified; `link` what a link is to lead to;
    `found` what was there in a listing; `compare`: it is only copied if its checksum differs; `above` are the folders
    on the way to this one and itself, as the server tells them apart, where links are followed; `linked`: a symbolic
    link at the destination leads there; `unique` and `within` tell what was listed, and the folder in which it was,
    apart from all else at the server; `twin` is another name of the folder for which the destination holds this one.
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
    def told(self) -> str | None:
        """The checksum that the file must have, if anybody has told."""
        return None if self.checksum is None or self.checksum.endswith(":") else self.checksum


class Work(NamedTuple):
    """A piece of work that a worker has leased."""

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
        """What tells this lease of it from all others, also from one that was given back."""
        return self.id, self.leases


class Task(NamedTuple):
    """All that is known of a task; the columns of its table."""

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

    @property
    def pending(self) -> int:
        """Pieces of work that are not over."""
        return self.total - self.succeeded - self.failed - self.skipped - self.canceled_work - self.expired


class Event(NamedTuple):
    """What happened in a task; `details` is text, JSON for STARTED and PROGRESS."""

    at: float
    code: str
    is_error: bool
    description: str
    details: str

    @classmethod
    def of(cls, row: Any) -> "Event":
        """Of a row of its table."""
        return cls(row.at, row.code, row.is_error, row.description, row.details)
