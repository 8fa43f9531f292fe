"""The pace of a reader that gets a file's bytes at a rate: when they are due, and in which seconds it got less. Pure.

Time is an argument. A reader that is slower than the rate loses nothing: bytes are due later by the time that it takes.
"""

from math import floor

__all__ = ["ReadingPace"]

WINDOW = 1.0
"""Seconds of a window, in which a reader gets its rate or not."""
TOLERANCE = 1e-6
"""Part of a window's bytes by which it may have less, as times are rounded."""


class ReadingPace:
    """The pace of one reader.

    After bytes that came too late, the following ones are due at once, until the reader has what it should have.

    :param rate: bytes per second
    :param now: seconds of a monotonic clock
    """

    def __init__(self, rate: float, now: float) -> None:
        self._rate = rate
        self._began = now
        self._missing_since: float | None = None
        self._missed: set[int] = set()
        self._slow = 0.0
        self._given = 0

    def wait(self, now: float) -> float:
        """Return the seconds until the next byte is due, not positive if it is."""
        return self._due - now

    @property
    def _due(self) -> float:
        return self._began + self._slow + self._given / self._rate

    def give(self, nbytes: int, now: float, until: float) -> None:
        """Record that the reader took bytes from `now` on, for which it needed until `until`."""
        if self._missing_since is not None:
            self._miss(max(self._missing_since, self._due), now)
            self._missing_since = None
        self._given += nbytes
        self._slow += max(0.0, until - now - nbytes / self._rate)

    def lack(self, now: float) -> None:
        """Record that the next bytes have not arrived; `give` or `end` ends that."""
        if self._missing_since is None:
            self._missing_since = now

    def _miss(self, since: float, until: float) -> None:
        """Record that bytes were due and missing for some time."""
        if until - since > TOLERANCE * WINDOW:
            first, last = (floor((each - self._began) / WINDOW) for each in (since, until))
            self._missed.update(range(first, last + 1))

    def result(self, now: float) -> tuple[int, int]:
        """Return the number of windows so far, and of those in which bytes were due that had not arrived."""
        if self._missing_since is not None:
            self._miss(max(self._missing_since, self._due), now)
        windows = max(1, floor((now - self._began) / WINDOW))
        return windows, sum(window < windows for window in self._missed)
