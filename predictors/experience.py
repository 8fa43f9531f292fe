"""What forecasters keep beside rates, and how they say what they know: set-up times, counts and ages.

A rate is learned from transfers that went well and are of some size: below that a transfer ends in TCP's slow start,
and tells how far the server is, not how fast.
"""

from array import array

from predictors.observation import Forecast, Observation, Query, Rates
from predictors.text import NOTHING, counted, duration

__all__ = ["RECENT", "SMALLEST", "Ago", "Experience", "telling"]

SMALLEST = 1 << 20
"""Bytes from which on a transfer tells a rate."""
RECENT = 64
"""Transfers back to which it is remembered what was known then."""
SETUPS = 5
"""Set-up times of which the median is expected: one lost packet costs a second, and says little of the next time."""


def telling(observation: Observation) -> float | None:
    """The rate that a transfer tells, None when it tells none."""
    if observation.bytes < SMALLEST or observation.outcome not in ("ok", "slow"):
        return None
    return observation.rate


class Experience:
    """How much is known of one series, and since when. A clock that went backwards stands still here."""

    def __init__(self) -> None:
        self._setups: tuple[float, ...] = ()
        self.count = 0
        self.newest = float("-inf")

    def setup(self, observation: Observation) -> None:
        """Take in a set-up time, if it was measured."""
        if observation.setup_seconds is not None:
            self._setups = (*self._setups, observation.setup_seconds)[-SETUPS:]

    def at(self, moment: float) -> float:
        """A moment not before the newest transfer."""
        return max(moment, self.newest)

    def rate(self, at: float) -> None:
        """One more rate was learned."""
        self.count, self.newest = self.count + 1, self.at(at)

    @property
    def setup_seconds(self) -> float | None:
        """What to expect of the next set-up."""
        return sorted(self._setups)[len(self._setups) // 2] if self._setups else None

    def forecast(self, name: str, rates: Rates, query: Query, said: str) -> Forecast:
        """A forecast with its ground: `said` completes "the forecast is ..."."""
        age = max(0.0, query.at - self.newest)
        reason = f"{said}, of {counted(self.count, 'transfer')}, the newest {duration(age)} ago"
        return Forecast(name, rates, self.setup_seconds, self.count, age, reason)

    def nothing(self, name: str) -> Forecast:
        """That no rate is known."""
        return Forecast(name, None, self.setup_seconds, 0, None, NOTHING)


class Ago:
    """What was known after each of the newest transfers, so that an earlier moment can be asked for.

    :param width: numbers that are known at a time: all are kept in one array, for there are thousands of these
    """

    __slots__ = ("_known", "_width")

    def __init__(self, width: int) -> None:
        self._width = 1 + width
        self._known = array("d")

    def learn(self, end: float, *known: float) -> None:
        """Take in what is known from this moment on, which is not before the last."""
        self._known.extend((end, *known))
        if len(self._known) > RECENT * self._width:
            del self._known[: self._width]

    def at(self, moment: float) -> tuple[float, ...] | None:
        """What was known at a moment; the oldest that is remembered for one before that. None without any."""
        known, width = self._known, self._width
        for row in range(len(known) - width, -1, -width):
            if known[row] <= moment:
                return tuple(known[row + 1 : row + width])
        return tuple(known[1:width]) or None
