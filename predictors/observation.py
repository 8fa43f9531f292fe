"""The values that travel: what was seen of a transfer, what is asked, what is expected. No behaviour beyond them.

Times are seconds since the epoch, durations seconds, sizes bytes, rates bytes per second.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

from predictors.errors import BadObservationError

__all__ = ["Forecast", "Observation", "Query"]


@dataclass(frozen=True, slots=True)
class Observation:
    """One source's part in one transfer that went well.

    `busy_seconds` is the time spent on its ranges, set-up included; `setup_seconds` the mean time from asking
    for a range to its first byte, None when it was not measured. `streams` is connections in parallel.

    :raises BadObservationError: if a number is not finite or negative, or the end is before the start
    """

    source: str
    start: float
    end: float
    bytes: int
    busy_seconds: float
    setup_seconds: float | None = None
    ranges: int = 1
    streams: int = 1

    def __post_init__(self) -> None:
        numbers = (self.start, self.end, self.bytes, self.busy_seconds, self.setup_seconds or 0.0, self.ranges)
        if not all(math.isfinite(number) for number in numbers):
            raise BadObservationError(f"an observation of {self.source} has a number that is not finite")
        if min(numbers[2:]) < 0 or self.end < self.start:
            raise BadObservationError(f"an observation of {self.source} is negative, or ends before it began")

    @property
    def rate(self) -> float | None:
        """Bytes per second once bytes flow; None when no time was spent.

        Where set-up took more than half of the busy time, what is left is the difference of two close numbers
        and says little: then the whole time counts.
        """
        flowing = self.busy_seconds - self.ranges * (self.setup_seconds or 0.0)
        seconds = flowing if flowing > self.busy_seconds / 2 else self.busy_seconds
        return self.bytes / seconds if seconds > 0 else None


class Query(NamedTuple):
    """What is to be expected of `source` for a transfer that begins at time `at`."""

    source: str
    at: float


class Forecast(NamedTuple):
    """What is expected, who says so, and on what ground.

    `rate` and `setup_seconds` are None where nothing is known. `observations` is how many are behind the
    rate, `newest_age` the seconds since the newest of them ended, `reason` one sentence for people.
    """

    forecaster: str
    rate: float | None
    setup_seconds: float | None
    observations: int
    newest_age: float | None
    reason: str
