"""A session at work for `sharing`: its parts, its rate, and the size of its next part. Time is an argument.

There are two kinds of sessions. For most, each part costs round trips and begins slowly, so they get one part at a
time, as long as possible. Others queue: they accept the next part while one is under way, without a pause. They get
short slices, only as far ahead that the server never waits, so that a session that becomes slow holds few bytes.
"""

from asyncio import Task
from math import inf

from coalloc.engine.base import Source
from coalloc.engine.span import RangePart
from coalloc.schedule.steal_size import AHEAD_TRIPS, SETUP_TRIPS, Thief, Victim

__all__ = ["SessionWork"]

SLICE_SECONDS, SLICE = 0.25, 256 * 1024
"""Desired seconds of a slice, and its minimum bytes (also used while no rate is known), as each costs CPU time."""
LEAST_SLICE, LONGEST = 64 * 1024, 64 * 1024 * 1024
"""Minimum bytes of a slice near the end, where all sessions should end together; maximum bytes of any part, as slots
may be recalled.
"""
LEAST_TRIPS = 1.5
"""As AHEAD_TRIPS, but near the end, where all sessions should end together."""
MEASURE_SECONDS, STALE_SECONDS = 0.1, 1.0
"""Seconds over which a rate is measured: for sessions that queue, whose slices should adapt quickly, and for others.
A rate is ignored if no bytes came within the longer time.
"""
LEAST_REQUEST = 4 * 1024
"""Bytes below which a request is not split between sessions that queue."""
EARLIER = 2.0
"""Factor by which the end must come sooner to justify a steal of queued requests, which the server answers in vain."""


class SessionWork:
    """One session, and the parts that it has to deliver, in order.

    :param rtt: round-trip time to the server in seconds
    """

    def __init__(self, session: Source, rtt: float) -> None:
        self.session = session
        self.parts: dict[Task[None], RangePart] = {}
        self.answers_after: float | None = None
        """Seconds to the last first byte, or for which one was awaited in vain; None if nothing is known."""
        self._rtt = rtt
        self._setup: float | None = None
        self._rate: float | None = None
        self._marked = self._last = 0.0
        self._since = 0

    @property
    def left(self) -> int:
        """Number of bytes that the session still has to deliver."""
        return sum(part.left for part in self.parts.values())

    def given(self, task: Task[None], part: RangePart, now: float) -> None:
        if not self.parts:
            if self._rate is None and self._since and not self.session.queues:  # a new part begins slowly
                self._rate = self._since / max(self._last - self._marked, 1e-6)
            self._marked, self._last, self._setup, self._since = now, now, None, 0
        self.parts[task] = part

    def delivered(self, part: RangePart, at: int, now: float) -> None:
        """Record that all bytes of `part` before `at` have arrived."""
        self._since += at - part.at
        part.at, self._last = at, now
        if self._setup is None:
            self._setup = self.answers_after = now - self._marked
        elif now >= self._marked + self._setup + (MEASURE_SECONDS if self.session.queues else STALE_SECONDS):
            self._rate = self._since / (now - self._marked)
            self._marked, self._since = now, 0

    def unanswered(self, now: float) -> float:
        """Return the seconds for which the session has been waiting for its first byte; 0 if it is not."""
        return now - self._marked if self.parts and self._setup is None else 0.0

    def give_up(self, now: float) -> None:
        """Note that another session takes over what this one was waiting for."""
        self.answers_after = max(self.answers_after or 0.0, self.unanswered(now))

    def seconds(self, now: float) -> float:
        """Return the seconds until all parts arrive at the current rate; infinity while no rate is known."""
        left, rate = self.left, self.rate(now)
        return left / rate if rate else inf if left else 0.0

    def rate(self, now: float) -> float:
        """Return the rate in bytes per second; 0 before the first byte, and if no bytes have come for a while."""
        if self._rate is None:
            return self._since / max(now - self._marked, 1e-6)
        return 0.0 if self.parts and now > self._last + STALE_SECONDS else self._rate

    def free(self, fair: int, lasts: float) -> bool:
        """Return whether the session should get another part now.

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

        :param fair: the session's share of the undealt bytes
        """
        if not self.session.queues:
            return min(fair, LONGEST)
        return max(LEAST_SLICE, min(self._slice, fair // 2))

    @property
    def _slice(self) -> int:
        return min(max(SLICE, int((self._rate or 0.0) * SLICE_SECONDS)), LONGEST)

    def last_part(self) -> RangePart | None:
        """Return the last part with bytes to deliver, whose end can be lowered."""
        return next((part for part in reversed(self.parts.values()) if part.left), None)

    def victim(self, guess: float, now: float) -> Victim:
        """Return the session as a victim for the rule for stealing. Only bytes of its last part can be taken.

        :param guess: rate in bytes per second to assume before its first byte
        """
        last, rate, pause = self.last_part(), self.rate(now), self._pause(now)
        if not self._since and self._rate is None:
            rate = guess
        return Victim(
            nbytes=self.left,
            seconds=pause + self.left / rate if rate else inf,
            rate=rate,
            pause=pause,
            in_flight=0 if pause else int(rate * SETUP_TRIPS * self._rtt),
            tail=last.left if last else 0,
        )

    def thief(self, guess: float, now: float) -> Thief:
        """Return the session as a thief for the rule for stealing.

        :param guess: rate in bytes per second to assume before its first byte
        """
        rate, trips = self.rate(now) or guess, SETUP_TRIPS * self._rtt
        if self.session.queues:
            return Thief(rate, self.left / rate + trips if rate else inf, least=LEAST_REQUEST)
        setup = self._setup or max(trips, self.answers_after or 0.0)
        return Thief(rate, setup, setup / SETUP_TRIPS)

    def worth(self, thief: Thief, victim: Victim) -> float:
        """Return the seconds that a steal from this session must save; more if its server sends the bytes anyway."""
        return max(thief.setup, victim.seconds / EARLIER) if self.session.queues else thief.setup

    def _pause(self, now: float) -> float:
        """Return the expected seconds until bytes flow; a late session is expected to need as long again."""
        silent = now - self._last
        if self._setup is None:
            return max(SETUP_TRIPS * self._rtt - silent, silent)
        return silent if silent > STALE_SECONDS else 0.0
