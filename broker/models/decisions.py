"""Decisions: the replicas chosen for a transfer, the reasons, and the results, as reported and as stored."""

from collections.abc import Sequence
from typing import Annotated, Literal, NamedTuple, Self

from pydantic import AfterValidator, Field, StringConstraints, model_validator

from broker.models.base import Count, Moment, Seconds, Size, Wire
from broker.models.names import ClientMessage, Key, SinkName, SourceName, Thing
from coalloc.model.reports import Ending, Outcome
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
    """A forecast rate in bytes per second: the median, and the interval from p10 to p90 if known."""

    p10: Rate | None = None
    p50: Rate
    p90: Rate | None = None


class SourcePart(Wire):
    """A candidate source: its forecast, its planned share, and its results.

    - `planned_bytes`: planned share; None if the strategy plans no shares
    - `seconds`: time in which it had ranges to deliver
    - `setup_seconds`: mean time from the request for a range to its first byte
    - `start_seconds`: time from the start of the transfer until it could deliver its first byte
    - `flow_seconds`: time in which its bytes arrived
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
    """A range: bytes [start, end) that one source was asked for; `end` may have moved since.

    - `bytes`: bytes that this source was the first to deliver
    - `asked`, `first`, `last`, `over`: seconds from the start of the transfer to the request, the first byte, the last
      byte, and the end of the range
    - `count`: number of neighbouring ranges merged into this one
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

    - `id`: chosen by the reporter; a second report with the same id is ignored
    - `moved`: bytes that were not at the destination before
    - `seconds`: total time; `fetch_seconds`: time until the last byte arrived
    - `range_count`: number of ranges, also if `ranges` merges neighbours
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
            raise ValueError("`moved` is more than `bytes`")
        if any(each.source >= len(self.sources) for each in self.ranges):
            raise ValueError("a range names a source that `sources` does not have")
        return self


class Made(NamedTuple):
    """A decision, and the work item of a task for which it was made, if any."""

    decided: ReportedDecision
    task_id: str | None = None
    work_id: int | None = None


class Regret(NamedTuple):
    """The durations in seconds that a transfer could have had, computed afterwards; None if unknown.

    :param best: duration with the best shares
    :param planned: duration with the planned shares
    :param single: duration from the best source alone
    :param shares: best shares, in bytes
    :param waits: number of the source that would have finished the plan last
    :param unknown: number of candidates left out because their rate is unknown
    """

    best: float | None = None
    planned: float | None = None
    single: float | None = None
    shares: Sequence[float] = ()
    waits: int | None = None
    unknown: int = 0


class DecisionsAccepted(Wire):
    """The result of a report: the numbers of new and of already stored decisions."""

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
    """A stored decision with all details; `shares` are the best shares in hindsight, in bytes, if known."""

    listed: DecisionSummary
    moved: int
    sources: list[SourcePart]
    shares: list[float]
    ranges: list[Range]
    range_count: int
