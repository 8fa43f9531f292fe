"""The times at which the bytes of one source arrived: which of them are newer than its replica's last check. Pure."""

from math import inf

from coalloc.util.intervals import Intervals

__all__ = ["Arrivals"]

GRAIN = 0.25
"""Seconds of bytes that share one time, the latest."""
MOST = 1000
"""Most times kept; older bytes then count as newer than they are."""


class Arrivals:
    """The ranges that arrived, by time.

    >>> arrivals = Arrivals()
    >>> arrivals.add(1.0, 0, 10); arrivals.add(2.0, 10, 20)
    >>> arrivals.after(1.5), arrivals.after(2.0)
    (Intervals([(10, 20)]), Intervals([]))
    """

    def __init__(self) -> None:
        self._began = -inf
        self._ranges: list[tuple[float, Intervals]] = []

    def add(self, now: float, start: int, end: int) -> None:
        """Record that [start, end) arrived now; times never fall."""
        if not self._ranges or now > self._began + GRAIN:
            self._began = now
            self._ranges.append((now, Intervals()))
            if len(self._ranges) > MOST:
                self._join_oldest()
        _, ranges = self._ranges[-1]
        ranges.add(start, end)
        self._ranges[-1] = now, ranges

    def _join_oldest(self) -> None:
        (_, older), (at, newer) = self._ranges[:2]
        for start, end in newer:  # few, where the older ones become more and more
            older.add(start, end)
        self._ranges[:2] = [(at, older)]

    def after(self, moment: float) -> Intervals:
        """Return the ranges that arrived after this moment."""
        return Intervals(each for at, ranges in self._ranges if at > moment for each in ranges)
