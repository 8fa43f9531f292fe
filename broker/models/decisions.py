"""Decisions: the replicas chosen for a transfer, the reasons, and the results, as reported and as stored."""

from collections.abc import Sequence
from typing import Annotated, Literal, NamedTuple, Self

from pydantic import AfterValidator, Field, StringConstraints, model_validator

from broker.models.base import Count, Moment, Seconds, Size, Wire
from broker.models.names import ClientMessage, Key, SinkName, SourceName, Thing
from coalloc.model import Ending, Outcome
from coalloc.safe_text import redacted_text

__all__ = [
    "DecisionSummary",
    "DecisionsAccepted",
    "Expectation",
    "Made",
    "Range",
    "Regret",
    "ReportedDecision",
    "SourcePart",
    "StoredDecision",
]

MOST_SOURCES, MOST_RANGES = 100, 2_000
Strategy = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_.+-]{1,64}$")]
Rate = Annotated[float, Field(gt=0, lt=1e16, allow_inf_nan=False)]


class Expectation(Wire):
    """A forecast rate, in bytes per second; in four of five cases between p10 and p90, if these are known."""

    p10: Rate | None = None
    p50: Rate
    p90: Rate | None = None


class SourcePart(Wire):
    """A candidate: its forecast, its planned share, and what it did.

    `seconds` is the time that it was busy, `setup_seconds` the mean time to the first byte of a range. `start_seconds`
    is the time from the beginning of the transfer until its bytes could first flow, `flow_seconds` the time that they
    flowed. `planned_bytes` is None if the strategy plans no shares.
    """

    source: SourceName
    url: Annotated[Thing, AfterValidator(redacted_text)]
    rate: Expectation | None = None
    setup_expected: Seconds | None = None
    reason: ClientMessage = ""
    planned_bytes: Size | None = None
    bytes: Size
    seconds: Seconds
    setup_seconds: Seconds | None = None
    start_seconds: Seconds | None = None
    flow_seconds: Seconds
    streams: Annotated[int, Field(ge=1, lt=2**31)] = 1
    outcome: Outcome
    error: ClientMessage | None = None


class Range(Wire):
    """A range: bytes [start, end) that a source was asked for, with the final `end`.

    `bytes` counts those that this source delivered first. Times are seconds since the beginning of the transfer: when
    the source was asked, when its first and its last byte arrived, and when the range was over. `count` is the number
    of neighbouring ranges that are merged into this one.
    """

    source: Annotated[int, Field(ge=0, lt=MOST_SOURCES)]
    start: Size
    end: Size
    bytes: Size
    asked: Seconds
    first: Seconds | None = None
    last: Seconds | None = None
    over: Seconds | None = None
    ending: Ending | None = None
    count: Annotated[int, Field(ge=1, lt=2**31)] = 1


class ReportedDecision(Wire):
    """A transfer of one file, or a collect job, whose sources are pairs of hosts.

    `id` is the reporter's own: a second report with the same id is the same transfer.

    `moved` is the number of bytes that were not there before. `seconds` is the total time, `fetch_seconds` the time
    until the last byte arrived. `range_count` is the number of ranges; `ranges` may merge neighbours.
    """

    id: Key
    at: Moment
    kind: Literal["download", "copy", "collect"]
    thing: Thing
    sink: SinkName = ""
    bytes: Size
    moved: Size
    strategy: Strategy
    rationale: ClientMessage = ""
    outcome: Literal["ok", "failed"]
    error: ClientMessage | None = None
    seconds: Seconds
    fetch_seconds: Seconds
    sources: Annotated[list[SourcePart], Field(min_length=1, max_length=MOST_SOURCES)]
    ranges: Annotated[Sequence[Range], Field(max_length=MOST_RANGES)] = ()
    range_count: Count = 0

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.moved > self.bytes:
            raise ValueError("it moved more bytes than it has")
        if any(each.source >= len(self.sources) for each in self.ranges):
            raise ValueError("a range has an unlisted source")
        return self


class Made(NamedTuple):
    """A decision, and the work item of a task for which it was made, if any."""

    decided: ReportedDecision
    task_id: str | None = None
    work_id: int | None = None


class Regret(NamedTuple):
    """The hindsight of a transfer, in seconds; None where it is not known. `shares` are the best ones, in bytes.

    `best` is with the best shares, `planned` with the planned ones, `single` from the best source alone. `waits` is the
    number of the source for which the plan would have waited, `unknown` the number of candidates that are left out
    because nothing is known about what they would have delivered.
    """

    best: float | None = None
    planned: float | None = None
    single: float | None = None
    shares: Sequence[float] = ()
    waits: int | None = None
    unknown: int = 0


class DecisionsAccepted(Wire):
    """The result of a report: the number of new decisions, and of those reported before."""

    accepted: int
    known: int


class DecisionSummary(NamedTuple):
    """A decision in a list."""

    id: int
    at: float
    subject: str
    kind: str
    thing: str
    sink: str
    bytes: int
    strategy: str
    rationale: str
    outcome: str
    error: str | None
    seconds: float
    fetch_seconds: float
    best_seconds: float | None
    planned_seconds: float | None
    single_seconds: float | None
    unknown: int
    task_id: str | None


class StoredDecision(NamedTuple):
    """A stored decision with all its details; `shares` are the best ones in hindsight, in bytes, if known."""

    listed: DecisionSummary
    moved: int
    sources: list[SourcePart]
    shares: list[float]
    ranges: list[Range]
    range_count: int
