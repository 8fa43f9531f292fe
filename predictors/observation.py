"""The values exchanged with forecasters: observations of transfers, queries, forecasts. Plain data with few methods.

Times are seconds since the epoch, durations seconds, sizes bytes, rates bytes per second.
"""

import math
from dataclasses import dataclass
from typing import Literal, NamedTuple

from predictors.errors import BadObservationError

__all__ = ["Direction", "Forecast", "New", "Observation", "Outcome", "Query", "Rates", "query_of"]

Direction = Literal["read", "write"]
Outcome = Literal["ok", "slow", "failed", "corrupt"]
New = Literal["", "link", "source", "sink", "source and sink"]
"""What no earlier transfer used; empty if the link was used, or nothing is known."""


@dataclass(frozen=True, slots=True)
class Observation:
    """One source's part in one transfer.

    `busy_seconds` is the time spent on its ranges, set-up included; None means all of the time. `setup_seconds` is the
    mean time from requesting a range to its first byte, None if not measured. `streams` is the number of parallel
    connections, `concurrency` the number of other transfers of the source or the sink under way at the start.
    `file_class` is any label that separates files that are served differently (tape or disk, a type, a volume).

    :raises BadObservationError: if a number is not finite or negative, or the end is not after the start
    """

    source: str
    start: float
    end: float
    bytes: int
    busy_seconds: float | None = None
    setup_seconds: float | None = None
    ranges: int = 1
    streams: int = 1
    sink: str = ""
    direction: Direction = "read"
    file_class: str = ""
    concurrency: int = 0
    outcome: Outcome = "ok"

    def __post_init__(self) -> None:
        busy, setup = self.busy_seconds or 0.0, self.setup_seconds or 0.0
        numbers = (self.start, self.end, self.bytes, busy, setup, self.ranges, self.streams, self.concurrency)
        if not all(math.isfinite(number) for number in numbers):
            raise BadObservationError(f"an observation of {self.source} has a number that is not finite")
        if min(numbers[2:]) < 0:
            raise BadObservationError(f"an observation of {self.source} has a negative number")
        if self.end <= self.start:
            raise BadObservationError(f"an observation of {self.source} ends when it begins, or before")

    @property
    def rate(self) -> float | None:
        """Bytes per second once bytes flow; None if none did, or no time was spent.

        If set-up took more than half of the busy time, the rest would be the difference of two close numbers, which is
        unreliable: then the whole busy time counts.
        """
        busy = self.end - self.start if self.busy_seconds is None else self.busy_seconds
        flowing = busy - self.ranges * (self.setup_seconds or 0.0)
        seconds = flowing if flowing > busy / 2 else busy
        return self.bytes / seconds if seconds > 0 and self.bytes else None


class Query(NamedTuple):
    """A transfer, starting at time `at`, for which a forecast is wanted; unknown fields keep their defaults."""

    source: str
    at: float
    bytes: int | None = None
    sink: str = ""
    direction: Direction = "read"
    file_class: str = ""
    streams: int = 1
    concurrency: int = 0


class Rates(NamedTuple):
    """Bytes per second: the 10th, 50th and 90th percentiles of the forecast."""

    p10: float
    p50: float
    p90: float


class Forecast(NamedTuple):
    """A forecast, with its forecaster and its reason.

    `rates` and `setup_seconds` are None if unknown. `observations` is the number of observations behind the rates,
    `newest_age` the seconds since the newest of them ended, `reason` one sentence for users. `leader` is the forecaster
    with the largest weight, if several are combined. `new` is what was not used yet: then the rates are a guess from
    other links.
    """

    forecaster: str
    rates: Rates | None
    setup_seconds: float | None
    observations: int
    newest_age: float | None
    reason: str
    leader: str = ""
    new: New = ""

    def seconds(self, nbytes: int) -> float | None:
        """Return the expected duration for `nbytes`, set-up included; None if no rate is known."""
        return None if self.rates is None else (self.setup_seconds or 0.0) + nbytes / self.rates.p50


def query_of(observation: Observation) -> Query:
    """Return the query for this transfer at its start."""
    return Query(
        observation.source,
        observation.start,
        observation.bytes,
        observation.sink,
        observation.direction,
        observation.file_class,
        observation.streams,
        observation.concurrency,
    )
