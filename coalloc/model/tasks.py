"""The state of a task of a broker. No behaviour, no I/O.

Sizes are bytes, rates bytes per second, times seconds.
"""

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

__all__ = ["TaskStatus", "TaskView"]

TaskStatus = Literal["ACTIVE", "INACTIVE", "SUCCEEDED", "FAILED"]


class TaskView(NamedTuple):
    """The current state of a task of a broker.

    `size` and `files` are the work found so far, which grows while the task reads directories; `ends` are the names of
    its collections; `begun`: work on it has begun; `waits` is the reason why it does not move, or empty, and `remedy`
    what to do then. `files_unverified` were copied, but could not be verified as requested; `left_out` are files
    skipped because of errors, `folders_not_cleared` directories of the destination in which a sync deleted nothing, as
    it could not be sure which files are extra; `document` is the broker's complete answer.
    """

    id: str
    label: str | None
    kind: Literal["transfer", "delete"]
    status: TaskStatus
    ends: tuple[str, ...]
    requested: float
    begun: bool
    seconds: float
    done_bytes: int
    size: int
    rate: float
    eta_seconds: float | None
    files: int
    files_done: int
    files_skipped: int
    left_out: int
    failed: int
    faults: int
    waits: str
    error: str | None
    document: Mapping[str, Any]
    folders_not_cleared: int = 0
    files_unverified: int = 0
    remedy: str = ""

    @property
    def over(self) -> bool:
        """Return whether the task has ended."""
        return self.status in ("SUCCEEDED", "FAILED")

    @property
    def name(self) -> str:
        """The name shown to users: the label, or the collections."""
        return self.label or " to ".join(self.ends)

    @property
    def phase(self) -> str:
        """The current activity in a word or two."""
        if self.over:
            return "done" if self.status == "SUCCEEDED" else "failed"
        return "waiting" if self.waits or not self.begun else "under way"
