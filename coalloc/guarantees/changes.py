"""A test of whether the rate of a path has changed, for notices and for a new mapping of streams. Pure.

It is not for forecasts: these are right sooner if they remember less (docs/explanation/promises.md).
"""

from collections.abc import Sequence
from itertools import pairwise
from math import exp, log
from statistics import fmean, pstdev

__all__ = ["ChangeTest"]

REFERENCE = 120
"""Number of windows that show how the rate usually is."""
DRIFT = 0.5
"""Half the change that is to be found, in standard deviations."""
MOST_OF = 3.0
"""Greatest deviation that counts, in standard deviations: a pause has no logarithm, and one window decides nothing."""
LEAST = 0.02
"""Least standard deviation of the logarithm of the rate, as no path is steadier."""
SMALLEST = 1e-3
"""Least rate, as a part of the mean."""


class ChangeTest:
    """Cumulative sums of the deviations of the logarithm of the rate, upwards and downwards (CUSUM, Page 1954).

    A deviation is from the value expected after the window before, so that correlated windows cause no more alarms.
    After an alarm, the new rate is learned from the next windows.

    :param false_alarms: alarms in a window, on average, while nothing changes; below .05
    """

    def __init__(self, false_alarms: float = 1e-4) -> None:
        self._threshold = _threshold(false_alarms)
        self._restart()

    def _restart(self) -> None:
        self._reference: list[float] = []
        self._up = self._down = 0.0
        self._known: tuple[float, float, float] | None = None

    def add(self, rate: float) -> bool:
        """Record the rate of the next window that we did not limit, and return whether it has changed."""
        if self._known is None:
            self._reference.append(rate)
            if len(self._reference) == REFERENCE:
                self._learn()
            return False
        deviation = self._deviation(rate)
        self._up = max(0.0, self._up + deviation - DRIFT)
        self._down = max(0.0, self._down - deviation - DRIFT)
        if max(self._up, self._down) < self._threshold:
            return False
        self._restart()
        return True

    def _learn(self) -> None:
        self._smallest = SMALLEST * fmean(self._reference) or 1.0
        logs = [log(max(self._smallest, rate)) for rate in self._reference]
        mean = fmean(logs)
        slope = _correlation([each - mean for each in logs])
        slope = max(0.0, min(0.95, slope + (1 + 3 * slope) / len(logs)))  # that of a short series is too low (Kendall)
        self._before = logs[-1]
        residuals = [b - mean - slope * (a - mean) for a, b in pairwise(logs)]
        self._known = mean, slope, max(LEAST, pstdev(residuals))

    def _deviation(self, rate: float) -> float:
        assert self._known is not None
        mean, slope, spread = self._known
        now, before = log(max(self._smallest, rate)), self._before
        self._before = now
        return max(-MOST_OF, min(MOST_OF, (now - mean - slope * (before - mean)) / spread))


def _correlation(values: Sequence[float]) -> float:
    """Return the correlation of neighbours; the mean of the values is 0."""
    squares = sum(each * each for each in values)
    return sum(a * b for a, b in pairwise(values)) / squares if squares else 0.0


def _threshold(false_alarms: float) -> float:
    """Return the threshold at which two sums have so many alarms in a window (Siegmund's approximation).

    Between two alarms of one sum lie (exp(c) - c - 1) / (2 d^2) windows on average, c = 2 d (h + 1.166).
    """
    low, high = 0.0, 100.0
    for _ in range(60):
        middle = (low + high) / 2
        c = 2 * DRIFT * (middle + 1.166)
        windows = (exp(c) - c - 1) / (2 * DRIFT**2)
        low, high = (middle, high) if 2 / windows > false_alarms else (low, middle)
    return high
