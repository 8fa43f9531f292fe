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
"""Highest possible rate in bytes per second; the broker refuses reports of higher rates."""
INTERFACE = 1e11
"""Rate of the fastest network interface in bytes per second (800 Gbit/s); reports of higher rates are set aside."""
Direction = Literal["read", "write"]


class Pair(NamedTuple):
    """A link and a direction. It is no pydantic model, because it serves as key of very many observations."""

    source: str
    sink: str = ""
    direction: Direction = "read"


class Observed(Wire):
    """The sum of one source's ranges in one transfer; failed transfers are reported, too.

    - `id`: chosen by the caller; a second report with the same id is ignored
    - `busy_seconds`: time in which the source had ranges to deliver; by default from `started` to `ended`
    - `setup_seconds`: mean time from the request for a range to its first byte
    - `concurrency`: number of other transfers of the source or the sink at the start
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
    """The result of a report: the numbers of new and of already stored observations."""

    accepted: int
    known: int


class LineRefusal(Wire):
    """A line of a log that was refused, and the reason."""

    line: int
    why: str


class LogChange(Wire):
    """A value of a log that the broker changed before storing it."""

    line: int
    field: str
    was: str
    now: str


class LogTaken(Ingested):
    """The result of importing a log, and the log's format.

    Each line was accepted, known before, refused, or left out (such as a directory listing). `refused` and `changed`
    describe only the first such lines; `lines_refused` and `lines_changed` count all of them.
    """

    kind: str
    refused: list[LineRefusal]
    changed: list[LogChange]
    lines_refused: int
    lines_changed: int
    lines_left_out: int


class TransferRecord(Wire):
    """A stored observation.

    - `error`, `subject`: null, unless the caller is its reporter or an admin
    - `set_aside`: reason why it is wrong, and forecasts ignore it; null otherwise
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
        """Return the record as a caller may see it.

        :param scope: subject whose observations are shown in full; None if all are
        """
        if scope is None or self.subject == scope:
            return self
        return self.model_copy(update={"error": None, "subject": None})
