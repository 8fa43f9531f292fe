"""Which replicas were chosen for a transfer, why, and what came of it, as reporters say it and as it is kept."""

from collections.abc import Sequence
from typing import Annotated, Literal, NamedTuple, Self

from pydantic import AfterValidator, Field, StringConstraints, model_validator

from broker.models.base import Count, Moment, Seconds, Size, Wire
from broker.models.names import Key, SinkName, SourceName, Thing, Told
from coalloc.model import Ending, Outcome
from coalloc.urls import redacted_text

__all__ = ["Decided", "Expectation", "Kept", "Listed", "Made", "Part", "Range", "Regret", "Taken"]

MOST_SOURCES, MOST_RANGES = 100, 2_000
Strategy = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_.+-]{1,64}$")]
Rate = Annotated[float, Field(gt=0, lt=1e16, allow_inf_nan=False)]


class Expectation(Wire):
    """Bytes per second that were expected; in four of five cases between p10 and p90, if these were known."""

    p10: Rate | None = None
    p50: Rate
    p90: Rate | None = None


class Part(Wire):
    """A candidate: what was expected of it, what it was to deliver, and what it did.

    `seconds` is how long it was busy, `setup_seconds` the mean time to the first byte of a range; `start_seconds` when
    its bytes could first flow, counted from the beginning, `flow_seconds` how long they did. `planned_bytes` is None
    where the scheme gives out no shares.
    """

    source: SourceName
    url: Annotated[Thing, AfterValidator(redacted_text)]
    rate: Expectation | None = None
    setup_expected: Seconds | None = None
    reason: Told = ""
    planned_bytes: Size | None = None
    bytes: Size
    seconds: Seconds
    setup_seconds: Seconds | None = None
    start_seconds: Seconds | None = None
    flow_seconds: Seconds
    streams: Annotated[int, Field(ge=1, lt=2**31)] = 1
    outcome: Outcome
    error: Told | None = None


class Range(Wire):
    """Bytes [start, end) as a source was asked for them, `end` as it was in the end; and those that it brought first.

    Times count from the beginning of the transfer: when it was asked, when its first and its last byte came, and when
    it was over. `count`: so many neighbours are told as one.
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


class Decided(Wire):
    """A transfer of one file, or a collection, whose sources are pairs of hosts.

    `id` is the reporter's own: reported again, it is the same.

    `moved` are the bytes that were not there before, `seconds` is how long all took, `fetch_seconds` until the last
    byte was there. `range_count` is how many ranges there were, of which `ranges` may put neighbours together.
    """

    id: Key
    at: Moment
    kind: Literal["download", "copy", "collect"]
    thing: Thing
    sink: SinkName = ""
    bytes: Size
    moved: Size
    strategy: Strategy
    rationale: Told = ""
    outcome: Literal["ok", "failed"]
    error: Told | None = None
    seconds: Seconds
    fetch_seconds: Seconds
    sources: Annotated[list[Part], Field(min_length=1, max_length=MOST_SOURCES)]
    ranges: Annotated[Sequence[Range], Field(max_length=MOST_RANGES)] = ()
    range_count: Count = 0

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.moved > self.bytes:
            raise ValueError("more was moved than it has bytes")
        if any(each.source >= len(self.sources) for each in self.ranges):
            raise ValueError("a range is of a source that is not listed")
        return self


class Made(NamedTuple):
    """A decision, and the work of a task that it was made for, if it was for one."""

    decided: Decided
    task_id: str | None = None
    work_id: int | None = None


class Regret(NamedTuple):
    """What would have been best, seconds; None: nobody can say. `shares` are the best ones in hindsight, bytes.

    `waits` is the number of the source that the plan would have waited for, `unknown` how many candidates had to be
    left out, since nobody knows what they would have done.
    """

    best: float | None = None
    planned: float | None = None
    single: float | None = None
    shares: Sequence[float] = ()
    waits: int | None = None
    unknown: int = 0


class Taken(Wire):
    """What became of a report: how many were new, and how many had been reported before."""

    accepted: int
    known: int


class Listed(NamedTuple):
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


class Kept(NamedTuple):
    """A decision as it is kept, with all that is known of it; `shares` are the best ones in hindsight, if known."""

    listed: Listed
    moved: int
    sources: list[Part]
    shares: list[float]
    ranges: list[Range]
    range_count: int
