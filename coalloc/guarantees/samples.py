"""The rates of a path in windows of many lengths: its distribution (IQ-Paths, section IV). Pure; time is an argument.

A window in which a limit of ours was in force is a *lower bound*, never a sample: a share, a rate limit, a slow
receiver or disk, or less asked for than the path could carry. It does not matter whether the limit was reached. If it
did, only the bad windows of a limited transfer would be samples, and the path would look worse than it is.
"""

from collections import deque
from math import floor
from typing import NamedTuple

__all__ = ["PathSamples", "WindowRate"]

LENGTH = 0.5
"""Seconds of the shortest window, within the 0.1 to 1 s of IQ-Paths, section VI-A."""
MOST = 1024
"""Number of samples, and of lower bounds, that are kept for each length."""
LONGEST = 2.0
"""Longest time between two calls of `add`, in windows; the rate in a longer time is not known window by window."""
ROUNDING = 1e-5
"""Part of a window by which times may be off."""


class WindowRate(NamedTuple):
    """The rate in one window.

    :param rate: bytes per second
    :param limited: whether a limit of ours was in force, so that the path may have had more
    """

    rate: float
    limited: bool = False


class PathSamples:
    """The rates of one path (a source and the route to it).

    Windows lie on a grid that all paths share, so that the windows of the same time can be compared. Two neighbours are
    joined to one of twice the length, and so on: the memory is bounded, and long windows reach far back.

    :param length: seconds of the shortest window
    """

    def __init__(self, length: float = LENGTH) -> None:
        self.length = length
        self._levels = [_Level()]
        self._last: float | None = None
        self._start_window()

    def _start_window(self) -> None:
        self._bytes = self._covered = 0.0
        self._limited = False

    def add(self, nbytes: float, now: float, limited: bool = False) -> None:
        """Record the bytes that have arrived since the last call; call it about twice in each window.

        The first call only sets the time. After a longer silence, or if the clock went back, nothing is known about the
        windows in question.

        :param now: seconds of a monotonic clock, the same one for all paths
        :param limited: whether a limit of ours was in force at any time since the last call
        """
        begun, self._last = self._last, now
        if begun is None or not 0 <= now - begun <= LONGEST * self.length * (1 + ROUNDING):
            self._start_window()
            return
        if now == begun:
            self._bytes, self._limited = self._bytes + nbytes, self._limited or limited
            return
        at, until = begun / self.length, now / self.length
        while at < until:
            edge = floor(at + ROUNDING) + 1
            end = min(float(edge), until)
            self._bytes += nbytes * (end - at) / (until - begun / self.length)
            self._covered += end - at
            self._limited |= limited
            if end >= edge - ROUNDING:
                self._end_window(edge - 1)
            at = end

    def _end_window(self, index: int) -> None:
        if self._covered > 1 - 3 * ROUNDING:
            self._append(index, WindowRate(self._bytes / self.length, self._limited))
        self._start_window()

    def _append(self, index: int, window: WindowRate) -> None:
        for level in range(len(self._levels) + 1):
            if level == len(self._levels):
                self._levels.append(_Level())
            before = self._levels[level].append(index, window)
            if before is None or index % 2 == 0:
                return
            window = WindowRate((before.rate + window.rate) / 2, before.limited or window.limited)
            index //= 2

    @property
    def count(self) -> int:
        """Number of windows of the shortest length so far, samples and lower bounds."""
        return self._levels[0].count

    def windows(self, seconds: float) -> dict[int, WindowRate]:
        """Return the windows of a length by their number: window i begins at i times the length, on the shared grid.

        If the shortest windows do not divide the length, the returned ones are somewhat shorter, and so vary more.

        :raises ValueError: the length is less than that of the shortest windows
        """
        if seconds < self.length * (1 - ROUNDING):
            raise ValueError(f"rates are known for windows of {self.length} s, and not for those of {seconds} s")
        number = floor(seconds / self.length + ROUNDING)
        level = 0
        while number % 2 == 0 and level + 1 < len(self._levels):
            number, level = number // 2, level + 1
        known = self._levels[level].all()
        if number == 1:
            return known
        parts: dict[int, list[WindowRate]] = {}
        for index, window in known.items():
            parts.setdefault(index // number, []).append(window)
        return {
            index: WindowRate(sum(part.rate for part in each) / number, any(part.limited for part in each))
            for index, each in parts.items()
            if len(each) == number
        }


class _Level:
    """The latest windows of one length. Lower bounds have a memory of their own: they must not replace samples."""

    def __init__(self) -> None:
        self._samples: deque[tuple[int, WindowRate]] = deque(maxlen=MOST)
        self._bounds: deque[tuple[int, WindowRate]] = deque(maxlen=MOST)
        self._last: tuple[int, WindowRate] | None = None
        self.count = 0

    def append(self, index: int, window: WindowRate) -> WindowRate | None:
        """Append a window; return the one directly before it, if there is one."""
        last = self._last
        if last and index <= last[0]:  # the clock went back, and this time is known already
            return None
        self._last = (index, window)
        (self._bounds if window.limited else self._samples).append(self._last)
        self.count += 1
        return last[1] if last and last[0] == index - 1 else None

    def all(self) -> dict[int, WindowRate]:
        """Return all windows by their number, in no order."""
        return dict([*self._samples, *self._bounds])
