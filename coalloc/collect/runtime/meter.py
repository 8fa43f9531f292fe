"""A meter of the rate at which bytes arrive."""

from collections import deque

__all__ = ["ByteMeter"]

WINDOW = 5.0
"""Seconds over which a rate is measured."""
STEADY = 2.0
"""Minimum seconds of measurement before a rate counts for `best`."""


class ByteMeter:
    """A counter of bytes. Times are seconds on any steady clock.

    >>> meter = ByteMeter()
    >>> meter.add(0.0, 0); meter.add(1.0, 50); meter.add(2.0, 50)
    >>> meter.bytes, meter.rate(2.0), meter.rate(60.0)
    (100, 50.0, 0.0)
    >>> meter.best
    50.0
    """

    def __init__(self) -> None:
        self.bytes = 0
        self.best: float | None = None
        """Highest sustained rate in bytes per second; None in the first `STEADY` seconds."""
        self._marks: deque[tuple[float, int]] = deque()

    def add(self, at: float, count: int) -> None:
        """Count bytes that have arrived since the last call."""
        self.bytes += count
        self._marks.append((at, self.bytes))
        rate = self.rate(at)
        if at - self._marks[0][0] >= STEADY:
            self.best = max(self.best or 0.0, rate)

    def rate(self, now: float) -> float:
        """Return the recent rate in bytes per second."""
        self._forget(now)
        if not self._marks:
            return 0.0
        at, before = self._marks[0]
        return (self.bytes - before) / (now - at) if now > at else 0.0

    def _forget(self, now: float) -> None:
        while self._marks and self._marks[0][0] < now - WINDOW:
            self._marks.popleft()
