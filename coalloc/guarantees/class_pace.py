"""The pace of a class of files that was promised a rate: how far it is ahead, and in which seconds it was late. Pure.

Time is an argument. Bytes of second n are due at its end; those that come before count for later seconds.
"""

from math import floor

__all__ = ["ClassPace"]

WINDOW = 1.0
"""Seconds of a window."""
ROUNDING = 1e-6
"""Part of a window's bytes by which it may have less, as times are rounded."""


class ClassPace:
    """The pace of one class from the promise on.

    :param rate: bytes per second
    :param size: bytes of all its files
    :param arrived: bytes that have arrived before the promise
    :param now: seconds of a monotonic clock

    >>> pace = ClassPace(10.0, 100, 15, 0.0)
    >>> pace.note(18, 1.9); pace.note(40, 2.5); pace.ahead(2.5)
    1.5
    >>> pace.result
    (2, 1)
    """

    def __init__(self, rate: float, size: int, arrived: int, now: float) -> None:
        self._rate = rate
        self._size = size
        self._began = now
        self._arrived = arrived
        self._windows = self._missed = 0

    def note(self, arrived: int, now: float) -> None:
        """Record how many bytes of the class have arrived so far; call it several times in each window."""
        windows = floor((now - self._began) / WINDOW)
        while self._windows < windows and not self.is_complete:
            self._windows += 1
            due = min(self._size, self._rate * WINDOW * (self._windows - ROUNDING))
            self._missed += self._arrived < due
        self._arrived = arrived

    def shrink(self, size: int) -> None:
        """Expect fewer bytes in all from now on."""
        self._size = size

    @property
    def is_complete(self) -> bool:
        """Return whether all bytes have arrived, so that no window follows."""
        return self._arrived >= self._size

    def ahead(self, now: float) -> float:
        """Return the seconds by which the class is ahead of its rate; negative if it is late."""
        return self._arrived / self._rate - (now - self._began)

    @property
    def result(self) -> tuple[int, int]:
        """Return the number of windows so far, and of those at whose end bytes were missing."""
        return self._windows, self._missed
