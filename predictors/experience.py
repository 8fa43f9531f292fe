"""Set-up times, counts and ages, which forecasters keep beside rates, and their description as text.

A rate is learned from transfers that succeeded and have a minimum size: a smaller one ends in TCP's slow start,
and reveals the round-trip time, not the rate.
"""

from array import array

from predictors.observation import Forecast, Observation, Query, Rates

__all__ = ["NOTHING", "RECENT", "SMALLEST", "Ago", "Experience", "counted", "duration", "telling"]

SMALLEST = 1 << 20
"""Minimum size in bytes of a transfer that yields a rate."""
RECENT = 64
"""Number of newest transfers for which the knowledge of that time is kept."""
SETUPS = 5
"""Number of newest set-up times whose median is the forecast: a lost packet costs a second, but seldom recurs."""
NOTHING = "no earlier transfer shows its rate"
"""Text used if no rate is known."""

HOUR = 3600.0
DAY = 24 * HOUR


def telling(observation: Observation) -> float | None:
    """Return the rate of a transfer in bytes per second; None if the transfer failed or is too small."""
    if observation.bytes < SMALLEST or observation.outcome not in ("ok", "slow"):
        return None
    return observation.rate


class Experience:
    """The set-up times, number and age of the transfers of one series. Its time never goes backwards."""

    def __init__(self) -> None:
        self._setups: tuple[float, ...] = ()
        self.count = 0
        self.newest = float("-inf")

    def setup(self, observation: Observation) -> None:
        """Learn a set-up time, if it was measured."""
        if observation.setup_seconds is not None:
            self._setups = (*self._setups, observation.setup_seconds)[-SETUPS:]

    def at(self, moment: float) -> float:
        """Return the time, or the end of the newest transfer if that is later."""
        return max(moment, self.newest)

    def rate(self, at: float) -> None:
        """Count one more learned rate."""
        self.count, self.newest = self.count + 1, self.at(at)

    @property
    def setup_seconds(self) -> float | None:
        """The forecast of the next set-up time."""
        return sorted(self._setups)[len(self._setups) // 2] if self._setups else None

    def forecast(self, name: str, rates: Rates, query: Query, basis: str) -> Forecast:
        """Return a forecast with its reason; `basis` completes the sentence "the forecast is ..."."""
        age = max(0.0, query.at - self.newest)
        reason = f"{basis}, of {counted(self.count, 'transfer')}, the newest {duration(age)} ago"
        return Forecast(name, rates, self.setup_seconds, self.count, age, reason)

    def nothing(self, name: str) -> Forecast:
        """Return a forecast without a rate."""
        return Forecast(name, None, self.setup_seconds, 0, None, NOTHING)


class Ago:
    """The knowledge after each of the newest transfers, so that an earlier time can be queried.

    All values are kept in one array, because there are thousands of these objects.
    :param width: number of values per transfer
    """

    __slots__ = ("_known", "_width")

    def __init__(self, width: int) -> None:
        self._width = 1 + width
        self._known = array("d")

    def learn(self, end: float, *known: float) -> None:
        """Store the values known from `end` on, which is not before the previous `end`."""
        self._known.extend((end, *known))
        if len(self._known) > RECENT * self._width:
            del self._known[: self._width]

    def at(self, moment: float) -> tuple[float, ...] | None:
        """Return the values known at a time; the oldest values for an earlier time, and None if there are none."""
        known, width = self._known, self._width
        for row in range(len(known) - width, -1, -width):
            if known[row] <= moment:
                return tuple(known[row + 1 : row + width])
        return tuple(known[1:width]) or None


def duration(seconds: float) -> str:
    """Return a duration in the largest unit of which it contains at least two.

    >>> duration(90), duration(25 * HOUR), duration(10 * DAY)
    ('90 seconds', '25 hours', '10 days')
    """
    for unit, name in ((DAY, "days"), (HOUR, "hours"), (60.0, "minutes")):
        if seconds >= 2 * unit:
            return f"{seconds / unit:.0f} {name}"
    return f"{seconds:.0f} seconds"


def counted(count: int, noun: str) -> str:
    """Return a count with its noun in the singular or plural.

    >>> counted(1, "transfer"), counted(20, "transfer")
    ('one transfer', '20 transfers')
    """
    return f"one {noun}" if count == 1 else f"{count} {noun}s"
