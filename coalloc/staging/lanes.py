"""Pairs of hosts as they are used: what is handed out to each, how fast it moves, and when one is left alone. Pure."""

from random import Random

from coalloc.schedule.pauses import pause_seconds
from coalloc.staging.rates import Meter

__all__ = ["Lane", "Pair"]

Pair = tuple[str, str]
"""The hosts that a hop leads from and to."""
TRIES = 10
"""Failures in a row after which a lane is left alone for good: about two minutes. There may be another way."""
SILENCE, LONGEST = 10.0, 60.0
"""Seconds without a byte after which a lane has stalled, at least and at most. Servers tell every 5 s what moved."""
LATE = 4.0
"""How many times as long as it should a piece may take between the two."""


class Lane:
    """One pair: a queue of hops that go one after the other."""

    def __init__(self) -> None:
        self.hops: dict[int, int] = {}
        """Bytes that have not arrived of each hop, in the order in which they were handed out."""
        self.under_way = 0
        self.used_at = 0.0
        """When something was last handed out or arrived."""
        self.failures = 0
        self.reason = ""
        """Why it failed last, if it did since something arrived."""
        self.resumes_at = 0.0
        self._meter = Meter()

    def hand(self, now: float, hop: int, size: int) -> None:
        """A hop is appended."""
        if not self.hops:
            self._meter.begin(now)
            self.used_at = now
        self.hops[hop] = size
        self.under_way += size

    def moved(self, now: float, hop: int, left: int) -> None:
        """Of a hop, only so many bytes have not arrived."""
        fresh = self.hops[hop] - left
        if fresh > 0:
            self._meter.moved(now, fresh)
            self.hops[hop] = left
            self.under_way -= fresh
            self.used_at = now

    def arrived(self, now: float, hop: int) -> None:
        """All of a hop has arrived: the lane is in order."""
        self.moved(now, hop, 0)
        self.failures, self.reason = 0, ""

    def over(self, hop: int) -> None:
        """A hop is not under way any more."""
        self.under_way -= self.hops.pop(hop)
        if not self.hops:
            self._meter.rest()

    def failed(self, now: float, reason: str, chance: Random) -> None:
        """It is left alone for a while, longer each time; what failed together counts once."""
        self.reason = reason
        if now >= self.resumes_at:
            self.failures += 1
            self.resumes_at = now + pause_seconds(self.failures, None, chance)

    @property
    def given_up(self) -> bool:
        """Whether it failed so often in a row that it is left alone for good."""
        return self.failures >= TRIES

    def rate(self, now: float, memory: float) -> float | None:
        """Bytes per second, measured over so many seconds; None while nothing is known."""
        return self._meter.rate(now, next(iter(self.hops.values()), 0), memory)

    def stalled(self, now: float, expected: float) -> bool:
        """Whether nothing has moved for so long that nothing will, at an expected rate in bytes per second."""
        first = next(iter(self.hops.values()), 0)
        patience = LATE * first / expected if expected else LONGEST
        return bool(self.hops) and now - self.used_at > min(max(SILENCE, patience), LONGEST)
