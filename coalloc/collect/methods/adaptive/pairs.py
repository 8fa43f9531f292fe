"""The use of pairs of hosts: the hops assigned to each, its rate, and its pauses after failures. Pure."""

from random import Random

from coalloc.collect.methods.adaptive.rates import PairRateMeter
from coalloc.schedule.pauses import pause_seconds

__all__ = ["Pair", "PairLane"]

Pair = tuple[str, str]
"""The hosts that a hop leads from and to."""
TRIES = 10
"""Consecutive failures, about two minutes, after which a lane is given up; there may be another path."""
SILENCE, LONGEST = 10.0, 60.0
"""Least and most seconds without a byte after which a lane has stalled. Servers report progress every 5 s."""
LATE = 4.0
"""Between these limits, how many times longer than expected a piece may take."""


class PairLane:
    """One pair: a queue of hops that run one after the other."""

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

    def failed(self, now: float, reason: str, chance: Random) -> None:
        """Record a failure and pause the lane, longer each time; simultaneous failures count once."""
        self.reason = reason
        if now >= self.resumes_at:
            self.failures += 1
            self.resumes_at = now + pause_seconds(self.failures, None, chance)

    @property
    def given_up(self) -> bool:
        """Return whether the lane failed so often in a row that it is not used any more."""
        return self.failures >= TRIES

    def rate(self, now: float, memory: float) -> float | None:
        """Return bytes per second, averaged over `memory` seconds; None while nothing is known."""
        return self._meter.rate(now, next(iter(self.hops.values()), 0), memory)

    def stalled(self, now: float, expected: float) -> bool:
        """Return whether nothing has moved for too long, given an expected rate in bytes per second."""
        first = next(iter(self.hops.values()), 0)
        patience = LATE * first / expected if expected else LONGEST
        return bool(self.hops) and now - self.used_at > min(max(SILENCE, patience), LONGEST)
