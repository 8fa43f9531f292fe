"""Observations of transfers, as callers report them and as they are stored."""

from typing import Annotated, Literal, NamedTuple, Self

from pydantic import Field, model_validator

from broker.models.base import Count, Moment, Seconds, Size, Wire
from broker.models.names import ClientMessage, FileClass, Key, SourceName, Whereto

__all__ = [
    "FASTEST",
    "INTERFACE",
    "Ingested",
    "LineRefusal",
    "LogChange",
    "LogTaken",
    "Observed",
    "Pair",
    "TransferRecord",
]

FASTEST = 1e13
"""Bytes per second; a report of a higher rate is impossible, and refused."""
INTERFACE = 1e11
"""Bytes per second (800 Gbit/s) of the fastest interface. A report of a higher rate is stored, but set aside."""
Direction = Literal["read", "write"]


class Pair(NamedTuple):
    """A link and a direction. It is not a wire type: there are as many as observations, and they are used as keys."""

    source: str
    sink: str = ""
    direction: Direction = "read"


class Observed(Wire):
    """One source's part in one transfer, with its ranges summed up; failed ones are reported, too.

    `id` is the caller's own: a second report with the same id is the same observation. `busy_seconds` is the time spent
    on its ranges, by default all of the time; `setup_seconds` is the mean time to the first byte of a range;
    `concurrency` is the number of other transfers of the source or the sink that were under way when it began.
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
    error: ClientMessage | None = None

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.ended <= self.started:
            raise ValueError("it did not end after its beginning")
        if self.bytes > FASTEST * (self.ended - self.started if self.busy_seconds is None else self.busy_seconds):
            raise ValueError("its rate is higher than any network's")
        return self


class Ingested(Wire):
    """The result of a report: the number of new observations, and of those reported before."""

    accepted: int
    known: int


class LineRefusal(Wire):
    """A line of a log that was refused, and the reason."""

    line: int
    why: str


class LogChange(Wire):
    """A value of a log that is stored in another form than its line has."""

    line: int
    field: str
    was: str
    now: str


class LogTaken(Ingested):
    """The result of taking in a log, and the kind of log.

    Each line was accepted, known before, refused, or left out (a listing of a folder, for example). `refused` and
    `changed` describe the first such lines only; `lines_refused` and `lines_changed` count all of them.
    """

    kind: str
    refused: list[LineRefusal]
    changed: list[LogChange]
    lines_refused: int
    lines_changed: int
    lines_left_out: int


class TransferRecord(Wire):
    """A stored observation; `error` and `subject` are null for all callers but its reporter and admins.

    `set_aside` says why it is known to be wrong; forecasts do not use it then.
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
        """Return the record as a caller sees it.

        :param scope: subject whose own observations are shown in full; None: everybody's are
        """
        if scope is None or self.subject == scope:
            return self
        return self.model_copy(update={"error": None, "subject": None})
