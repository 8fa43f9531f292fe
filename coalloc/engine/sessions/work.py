"""A session at work for `sharing`: its parts, its rate, and the size of its next part. Time is an argument.

There are two kinds of sessions. For most, each part costs round trips and begins slowly, so they have one part at a
time, as long as possible. Others queue: they accept the next part while one is under way, without a pause. They are
given short slices, just enough ahead that the server never waits, so that a session that becomes slow holds little.
"""

from asyncio import Task
from math import inf

from coalloc.engine.base import Source
from coalloc.engine.span import Span

__all__ = ["RangePart", "SessionWork"]

SLICE_SECONDS, SLICE = 0.25, 256 * 1024
"""Duration of a slice in seconds; its least bytes, also used while no rate is known, as each slice costs CPU time."""
LEAST_SLICE, LONGEST = 64 * 1024, 64 * 1024 * 1024
"""Bytes of a slice near the end, where all sessions should end together; most bytes of any part, as slots may be
recalled.
"""
AHEAD_TRIPS, LEAST_TRIPS = 3.0, 1.5
"""Round trips' worth of bytes given ahead: one until the request arrives, plus what TCP's growth may add. Fewer near
the end, where all sessions should end together.
"""
MEASURE_SECONDS, STALE_SECONDS = 0.1, 1.0
"""Seconds over which a rate is measured, for sessions that queue (slices adapt at once) and for the others (long parts
need not). A rate is ignored if no bytes came within the longer time.
"""
LEAST_CUT = 64 * 1024
"""Least bytes that a part must still lack for half of them to be taken away."""
WORTH = 8.0
"""Set-ups that a part must still last to be split in two: one for the set-up, the rest for TCP's slow start."""
WORTH_TRIPS, EARLIER = 2.0, 2.0
"""Where sessions queue: round trips that it costs to let another session deliver a part, and how many times faster the
other one must be.
"""


class RangePart(Span):
    """A part of `whole` that never reaches beyond its end; the bytes before `at` are delivered."""

    __slots__ = ("_asked", "_end", "_whole", "at")

    def __init__(self, whole: Span, start: int, end: int) -> None:
        self._whole = whole
        super().__init__(start, end)
        self.at = start
        self._asked = end

    @property
    def end(self) -> int:
        return max(self.start, min(self._end, self._whole.end))

    @end.setter
    def end(self, end: int) -> None:
        self._end = end

    @property
    def left(self) -> int:
        return max(0, self.end - self.at)

    @property
    def delivered(self) -> bool:
        """Return whether all bytes that were requested are delivered, which may be more than are wanted by now."""
        return self.at >= self._asked


class SessionWork:
    """One session, and the parts that it has to deliver, in order.

    :param rtt: round-trip time to the server in seconds
    """

    def __init__(self, session: Source, rtt: float) -> None:
        self.session = session
        self.parts: dict[Task[None], RangePart] = {}
        self._rtt = rtt
        self._setup: float | None = None
        self._rate: float | None = None
        self._marked = self._last = 0.0
        self._since = 0

    @property
    def left(self) -> int:
        """The bytes that it still has to deliver."""
        return sum(part.left for part in self.parts.values())

    def given(self, task: Task[None], part: RangePart, now: float) -> None:
        if not self.parts:
            self._marked, self._last, self._setup, self._since = now, now, None, 0
        self.parts[task] = part

    def delivered(self, part: RangePart, at: int, now: float) -> None:
        """Note that all of `part` before `at` has arrived."""
        self._since += at - part.at
        part.at, self._last = at, now
        if self._setup is None:
            self._setup = now - self._marked
        elif now >= self._marked + self._setup + (MEASURE_SECONDS if self.session.queues else STALE_SECONDS):
            self._rate = self._since / (now - self._marked)
            self._marked, self._since = now, 0

    def seconds(self, now: float) -> float:
        """Return the seconds until the rest arrives at the current rate; infinity while no rate is known."""
        left, rate = self.left, self.rate(now)
        return left / rate if rate else inf if left else 0.0

    def rate(self, now: float) -> float:
        """Return the known rate in bytes per second; 0 before the first byte, and when none have come for a while."""
        if self._rate is None:
            return self._since / max(now - self._marked, 1e-6)
        return 0.0 if self.parts and now > self._last + STALE_SECONDS else self._rate

    def free(self, fair: int, lasts: float) -> bool:
        """Return whether it should have a further part now.

        :param fair: see `length`
        :param lasts: seconds for which the undealt bytes will last
        """
        if not self.session.queues:
            return not self.parts
        if self._rate is None:
            return self.left < min(SLICE, fair) + self.length(fair)
        ahead = max(LEAST_TRIPS * self._rtt, min(AHEAD_TRIPS * self._rtt, lasts))
        return self.left < self._rate * ahead + self.length(fair)

    def length(self, fair: int) -> int:
        """Return the bytes of the next part.

        :param fair: its share of the undealt bytes
        """
        if not self.session.queues:
            return min(fair, LONGEST)
        return max(LEAST_SLICE, min(self._slice, fair // 2))

    @property
    def _slice(self) -> int:
        return min(max(SLICE, int((self._rate or 0.0) * SLICE_SECONDS)), LONGEST)

    def cut_for(self, other: "SessionWork", now: float) -> tuple[int, int] | None:
        """Give up the end of the last part, if `other` gains enough by it; return the range given up, or None."""
        part = next((part for part in reversed(self.parts.values()) if part.left), None)
        if part is None:
            return None
        if self.session.queues and other.session.queues:
            keep = self._on_its_way(part, now)
            worth = other.earlier(self, part.left - keep, now)
        else:
            keep = part.left // 2
            cost = 2 * WORTH_TRIPS * self._rtt if other.session.queues else WORTH * (self._setup or 0.0)
            worth = part.left >= LEAST_CUT and self.seconds(now) > cost
        if not worth or keep >= part.left:
            return None
        end, part.end = part.end, part.at + keep
        return part.end, end

    def _on_its_way(self, part: RangePart, now: float) -> int:
        """Return how many bytes of a slice would be here before another session could deliver them."""
        if part is not next(iter(self.parts.values())):
            return 0
        return min(int(self.rate(now) * WORTH_TRIPS * self._rtt), part.left)

    def earlier(self, other: "SessionWork", count: int, now: float) -> bool:
        """Return whether it would deliver `count` more bytes in half the time of `other`, which sends them in vain."""
        rate = self.rate(now)
        seconds = self.seconds(now) + WORTH_TRIPS * self._rtt + count / rate if rate else inf
        return EARLIER * seconds < other.seconds(now)
