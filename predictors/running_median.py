"""The median of a stream of positive numbers, in constant memory and time; newer numbers count more."""

from array import array
from math import exp, log

__all__ = ["RunningMedian"]

DISCOUNT = 0.9995
"""Factor by which each number reduces the weight of the earlier ones: about the last 2,000 count."""
LEAST, LARGEST, STEP, BINS = 1e-5, 30.0, 0.05, 300
"""Bins are 5 % wide, from LEAST to LARGEST; the first and the last one have all numbers beyond, too."""
LARGEST_WEIGHT = 1e9


class RunningMedian:
    """A histogram with bins of equal relative width, and the bin of its median.

    >>> median = RunningMedian()
    >>> for number in (3.0, 0.1, 0.2):
    ...     median.add(number)
    >>> round(median.value, 1)
    0.2
    """

    __slots__ = ("_below", "_bin", "_bins", "_total", "_weight")

    def __init__(self) -> None:
        self._bins = array("d", bytes(8 * BINS))
        self._bin = 0
        self._below = 0.0
        """Weight of the numbers in bins before that of the median."""
        self._total = 0.0
        self._weight = 1.0
        """Weight of the next number: instead of reducing all earlier weights, each new one is larger."""

    def add(self, number: float) -> None:
        """Count a number."""
        place = min(int(log(min(max(number, LEAST), LARGEST) / LEAST) / STEP), BINS - 1)
        self._bins[place] += self._weight
        self._total += self._weight
        if place < self._bin:
            self._below += self._weight
        self._weight /= DISCOUNT
        if self._weight > LARGEST_WEIGHT:
            self._scale_down()
        self._follow()

    def _follow(self) -> None:
        """Move to the bin that has the middle of the weight."""
        while self._bin and self._below > self._total / 2:
            self._bin -= 1
            self._below -= self._bins[self._bin]
        while self._bin < BINS - 1 and self._below + self._bins[self._bin] < self._total / 2:
            self._below += self._bins[self._bin]
            self._bin += 1

    def _scale_down(self) -> None:
        self._bins = array("d", (each / LARGEST_WEIGHT for each in self._bins))
        self._below = sum(self._bins[: self._bin])
        self._total, self._weight = sum(self._bins), self._weight / LARGEST_WEIGHT

    @property
    def value(self) -> float:
        """The median, interpolated within its bin; 0 without any number."""
        inside = self._bins[self._bin]
        part = min(max((self._total / 2 - self._below) / inside, 0.0), 1.0) if inside else 0.0
        return LEAST * exp(STEP * (self._bin + part)) if self._total else 0.0
