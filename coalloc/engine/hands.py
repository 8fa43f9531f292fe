"""A session at work for `dealing`: what it was given, how fast it is, what to give it next. Pure: time is an argument.

Two kinds of sessions. For most, each part costs round trips and begins slowly, so they have one at a time, as long as
can be. Others queue: they take the next part while one is under way and pause for none. They are given slices of a
moment each, just enough ahead that the server never waits, so that little is given to a session that turns slow.
"""

from asyncio import Task
from math import inf

from coalloc.engine.base import Source, Span

__all__ = ["Hand", "Part"]

SLICE_SECONDS, SLICE = 0.25, 256 * 1024
"""How long a slice should take; its bytes at the least, and while no rate is known: each costs time of ours, too."""
LEAST_SLICE, LONGEST = 64 * 1024, 64 * 1024 * 1024
"""Bytes of a slice near the end, where all should end together; of any part at the most, as it may be recalled."""
AHEAD_TRIPS, LEAST_TRIPS = 3.0, 1.5
"""Round trips' worth of bytes to be given ahead: one until the server knows, and what TCP's growth may add. Near the
end, where all should end together, fewer."""
MEASURE_SECONDS, STALE_SECONDS = 0.1, 1.0
"""Seconds that a rate is measured for: slices follow it at once, long parts need not. After the longer time what was
measured does not count if nothing came since."""
LEAST_CUT = 64 * 1024
"""Bytes that a part must still lack for half of them to be taken away."""
WORTH = 8.0
"""Set-ups that a part must still last to be cut in two: one, and TCP's slow start, for half of it."""
WORTH_TRIPS, EARLIER = 2.0, 2.0
"""Where sessions queue: round trips that it costs to let another one deliver a part, and how much earlier it must."""


class Part(Span):
    """A part of `whole`, beyond whose end it never reaches; its bytes before `at` are delivered."""

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
        """Whether all was delivered that was asked for, which may be more than is wanted by now."""
        return self.at >= self._asked


class Hand:
    """One session, and the parts that it has to deliver, in their order.

    :param rtt: seconds of a round trip to the server
    """

    def __init__(self, session: Source, rtt: float) -> None:
        self.session = session
        self.parts: dict[Task[None], Part] = {}
        self._rtt = rtt
        self._setup: float | None = None
        self._rate: float | None = None
        self._marked = self._last = 0.0
        self._since = 0

    @property
    def left(self) -> int:
        """Bytes that it still has to deliver."""
        return sum(part.left for part in self.parts.values())

    def given(self, task: Task[None], part: Part, now: float) -> None:
        if not self.parts:
            self._marked, self._last, self._setup, self._since = now, now, None, 0
        self.parts[task] = part

    def delivered(self, part: Part, at: int, now: float) -> None:
        """All of `part` before `at` is here."""
        self._since += at - part.at
        part.at, self._last = at, now
        if self._setup is None:
            self._setup = now - self._marked
        elif now >= self._marked + self._setup + (MEASURE_SECONDS if self.session.queues else STALE_SECONDS):
            self._rate = self._since / (now - self._marked)
            self._marked, self._since = now, 0

    def seconds(self, now: float) -> float:
        """How long it will take for what is left, at its rate; for ever while nothing is known."""
        left, rate = self.left, self.rate(now)
        return left / rate if rate else inf if left else 0.0

    def rate(self, now: float) -> float:
        """Bytes per second, as far as is known: 0 before the first, and when none have come for a while."""
        if self._rate is None:
            return self._since / max(now - self._marked, 1e-6)
        return 0.0 if self.parts and now > self._last + STALE_SECONDS else self._rate

    def free(self, fair: int, lasts: float) -> bool:
        """Whether it should have a further part now.

        :param fair: as for `length`
        :param lasts: seconds for which there is something to give to any
        """
        if not self.session.queues:
            return not self.parts
        if self._rate is None:
            return self.left < min(SLICE, fair) + self.length(fair)
        ahead = max(LEAST_TRIPS * self._rtt, min(AHEAD_TRIPS * self._rtt, lasts))
        return self.left < self._rate * ahead + self.length(fair)

    def length(self, fair: int) -> int:
        """Bytes of the next part.

        :param fair: its part of what is not given to any yet
        """
        if not self.session.queues:
            return min(fair, LONGEST)
        return max(LEAST_SLICE, min(self._slice, fair // 2))

    @property
    def _slice(self) -> int:
        return min(max(SLICE, int((self._rate or 0.0) * SLICE_SECONDS)), LONGEST)

    def cut_for(self, other: "Hand", now: float) -> tuple[int, int] | None:
        """Give up the end of the last part, if that is worth its cost with `other`: what is given up."""
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

    def _on_its_way(self, part: Part, now: float) -> int:
        """What of a slice would be here before another one could deliver it."""
        if part is not next(iter(self.parts.values())):
            return 0
        return min(int(self.rate(now) * WORTH_TRIPS * self._rtt), part.left)

    def earlier(self, other: "Hand", count: int, now: float) -> bool:
        """Whether it would deliver `count` more bytes in half the time that `other` needs, which sends them in vain."""
        rate = self.rate(now)
        seconds = self.seconds(now) + WORTH_TRIPS * self._rtt + count / rate if rate else inf
        return EARLIER * seconds < other.seconds(now)
