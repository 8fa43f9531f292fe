"""The queues of pairs of hosts: a pair's hops, its rate, and its pauses after failures.

The rate comes from the pair's arrivals: r_xy of Confluence (3.4, 4.1). Pure; time is an argument.
"""

from collections import deque
from random import Random

from coalloc.schedule.pauses import pause_seconds

__all__ = ["MEMORY", "LinkQueue", "Pair", "PairRateMeter"]

Pair = tuple[str, str]
"""Source and sink of a hop."""
TRIES = 7
"""Consecutive failures, about half a minute, after which a queue is given up; there may be another path."""
SILENCE, LONGEST = 10.0, 60.0
"""Minimum and maximum seconds without a byte after which a queue has stalled. Servers report progress every 5 s."""
LATE = 4.0
"""Factor by which a piece may take longer than expected, within these limits."""
MEMORY = 5.0
"""Maximum seconds over which a rate is averaged."""
RAMP = 1.0
"""Seconds after a pair's first byte that do not count, and minimum seconds that must count before its rate is known.

TCP first doubles its rate each round trip, exceeds the capacity, and slows down again: not representative.
"""


class LinkQueue:
    """The hops of one link, which run one after the other."""

    def __init__(self) -> None:
        self.hops: dict[int, int] = {}
        """Bytes of each hop that have not arrived, in the order of assignment."""
        self.under_way = 0
        self.used_at = 0.0
        """Time of the last assignment or arrival."""
        self.failures = 0
        self.reason = ""
        """Reason of the last failure, if nothing has arrived since."""
        self.resumes_at = 0.0
        self._held = False
        self._meter = PairRateMeter()

    def work(self, now: float, hop: int, size: int) -> None:
        """Append a hop."""
        if not self.hops:
            self._meter.begin(now)
            self.used_at = now
        self.hops[hop] = size
        self.under_way += size

    def moved(self, now: float, hop: int, left: int) -> None:
        """Record that only `left` bytes of a hop have not arrived."""
        fresh = self.hops[hop] - left
        if fresh > 0:
            self._meter.moved(now, fresh)
            self.hops[hop] = left
            self.under_way -= fresh
            self.used_at = now

    def arrived(self, now: float, hop: int) -> None:
        """Record that all of a hop has arrived, which resets the failures."""
        self.moved(now, hop, 0)
        self.failures, self.reason = 0, ""

    def over(self, hop: int) -> None:
        """Remove a hop that is not under way any more."""
        self.under_way -= self.hops.pop(hop)
        if not self.hops:
            self._meter.rest()

    def failed(self, now: float, reason: str, chance: Random, *, for_good: bool = False) -> None:
        """Record a failure and pause the queue, longer each time; simultaneous failures count once.

        :param for_good: whether the link can never work
        """
        self.reason = reason
        if for_good:
            self.failures = TRIES
        elif now >= self.resumes_at:
            self.failures += 1
            self.resumes_at = now + pause_seconds(self.failures, None, chance)

    def hold(self, now: float, over: bool) -> None:
        """Record the beginning of a wait in which the queue cannot stall, or its end."""
        self._held = not over
        self.used_at = now

    @property
    def given_up(self) -> bool:
        """Return whether the queue is not used any more, after too many failures in a row."""
        return self.failures >= TRIES

    def rate(self, now: float, memory: float) -> float | None:
        """Return bytes per second, averaged over `memory` seconds; None while nothing is known."""
        return self._meter.rate(now, next(iter(self.hops.values()), 0), memory)

    def stalled(self, now: float, expected: float) -> bool:
        """Return whether nothing has moved for too long, given an expected rate in bytes per second."""
        if self._held:
            return False
        first = next(iter(self.hops.values()), 0)
        patience = LATE * first / expected if expected else LONGEST
        return bool(self.hops) and now - self.used_at > min(max(SILENCE, patience), LONGEST)


class PairRateMeter:
    """Bytes per second over the last seconds in which a pair had enough to send.

    The time before the first byte is set-up and does not count, unless it takes too long. Time with nothing to send
    does not count. Bytes under way are assumed to arrive at the same rate; if they are late, the rate falls.

    >>> meter = PairRateMeter()
    >>> meter.begin(0.0)
    >>> meter.rate(2.0, 1000) is None  # still connecting, perhaps
    True
    >>> for at in (3.0, 4.0, 5.0): meter.moved(at, 1000)
    >>> meter.rate(5.5, 1000)
    1000.0
    >>> round(meter.rate(9.0, 1000))  # 1000 bytes are 3 s late
    400
    >>> meter.rest(); meter.rate(99.0, 0)
    1000.0
    """

    __slots__ = ("_begun", "_counts_from", "_samples", "_seconds", "_since")

    def __init__(self) -> None:
        self._samples: deque[tuple[float, int]] = deque()
        self._seconds = 0.0
        self._begun = 0.0
        self._since: float | None = None
        self._counts_from: float | None = None

    def begin(self, now: float) -> None:
        """Record that there is something to send from now on."""
        self._begun, self._since = now, None

    def moved(self, now: float, nbytes: int) -> None:
        """Record the arrival of `nbytes` more bytes."""
        if self._counts_from is None:
            self._counts_from = now + RAMP
        if self._since is not None and now >= self._counts_from:
            self._samples.append((now - self._since, nbytes))
            self._seconds += now - self._since
            while self._seconds - self._samples[0][0] > MEMORY:
                self._seconds -= self._samples.popleft()[0]
        self._since = now

    def rest(self) -> None:
        """Record that there is nothing to send for now."""
        self._since = None

    def rate(self, now: float, under_way: int, memory: float = MEMORY) -> float | None:
        """Return bytes per second; None while the rate is unknown.

        :param under_way: bytes of the first hop that have not arrived
        :param memory: seconds over which to average, at most `MEMORY`
        """
        silence = 0.0 if self._since is None else now - self._since
        seconds, nbytes = self._last(memory)
        if seconds and self._seconds + silence < RAMP:
            return None
        if not seconds:
            waited = now - (self._begun if self._since is None else self._since)
            return under_way / waited if under_way and waited > MEMORY else None
        moving = min(under_way, nbytes / seconds * silence)
        seconds, nbytes = self._last(max(memory - silence, 0.0))
        return (nbytes + moving) / (seconds + silence)

    def _last(self, span: float) -> tuple[float, float]:
        """Return up to the last `span` seconds of sending, and the bytes that arrived in them."""
        seconds, nbytes = 0.0, 0.0
        for took, came in reversed(self._samples):
            part = min(1.0, (span - seconds) / took) if took else 1.0
            seconds, nbytes = seconds + took * part, nbytes + came * part
            if seconds >= span:
                break
        return seconds, nbytes
