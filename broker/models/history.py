"""What transfers achieved, as callers report it and as it is kept."""

from typing import Annotated, Literal, NamedTuple, Self

from pydantic import Field, model_validator

from broker.models.base import Count, Moment, Seconds, Size, Wire
from broker.models.names import FileClass, Key, SourceName, Told, Whereto

__all__ = ["FASTEST", "INTERFACE", "Change", "Ingested", "LogTaken", "Observed", "Pair", "Refusal", "TransferRecord"]

FASTEST = 1e13
"""Bytes per second beyond which a report makes no sense, and is refused."""
INTERFACE = 1e11
"""Bytes per second (800 Gbit/s): no interface has more. A report of more is kept, and set aside."""
Direction = Literal["read", "write"]


class Pair(NamedTuple):
    """A way that bytes go. No wire type: there are as many of them as observations, and they are looked up."""

    source: str
    sink: str = ""
    direction: Direction = "read"


class Observed(Wire):
    """One source's part in one transfer, its ranges summed; failures too.

    `id` is the caller's own: reported again, it is the same observation. `busy_seconds` is the time spent on its
    ranges, all of the time unless given; `setup_seconds` the mean time to the first byte of a range; `concurrency`
    how many other transfers of source or sink were under way when it began.
    """

    id: Key
    source: SourceName
    sink: Whereto = ""
    direction: Direction = "read"
    started: Moment
    ended: Moment
    bytes: Size
    busy_seconds: Seconds | None = None
    setup_seconds: Seconds | None = None
    ranges: Count = 1
    streams: Annotated[int, Field(ge=1, lt=2**31)] = 1
    concurrency: Count = 0
    file_class: FileClass = ""
    outcome: Literal["ok", "slow", "failed", "corrupt"] = "ok"
    error: Told | None = None

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.ended <= self.started:
            raise ValueError("it ended when it began, or before")
        if self.bytes > FASTEST * (self.ended - self.started if self.busy_seconds is None else self.busy_seconds):
            raise ValueError("so many bytes in so little time are beyond any network")
        return self


class Ingested(Wire):
    """What became of a report: how many were new, and how many had been reported before."""

    accepted: int
    known: int


class Refusal(Wire):
    """A line of a log of which nothing is kept, and why."""

    line: int
    why: str


class Change(Wire):
    """A value of a log that is kept in another form than its line has it."""

    line: int
    field: str
    was: str
    now: str


class LogTaken(Ingested):
    """What became of a log, and what it is.

    Each of its lines was accepted, known, refused or left out, as listings are. `refused` and `changed` are of the
    first lines, and the numbers beside them of all.
    """

    kind: str
    refused: list[Refusal]
    changed: list[Change]
    lines_refused: int
    lines_changed: int
    lines_left_out: int


class TransferRecord(Wire):
    """An observation as it is kept; `error` and `subject` are null to others than who has reported it, and admins.

    `set_aside` says why it is known to be wrong: no forecast rests on it then.
    """

    id: int
    source: str
    sink: str
    direction: Direction
    started: Moment
    ended: Moment
    bytes: Size
    busy_seconds: float | None
    setup_seconds: float | None
    ranges: int
    streams: int
    concurrency: int
    file_class: str
    outcome: str
    error: str | None
    subject: str | None
    forecast_id: int | None
    set_aside: str | None

    def shown_to(self, scope: str | None) -> Self:
        """Return what who sees the doings of this subject is told of it; None: of everybody."""
        if scope is None or self.subject == scope:
            return self
        return self.model_copy(update={"error": None, "subject": None})
