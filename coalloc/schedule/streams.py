"""How many parallel streams a source is worth. Pure; one `Widening` a source.

Over a short way one TCP stream is as fast as many. Over a long way one needs seconds to reach the link's rate, and
where packets are lost, be it one in a thousand, it never does (docs/explanation/distance.md has measurements). So a
source that is near keeps one stream; one that is far begins with a few. These are made more when the rate has fallen
well below what it was before, as it does where packets are lost, and as long as the last increase has helped.
"""

from dataclasses import dataclass

__all__ = ["FIRST", "MOST", "Widening"]

FAR = 0.015
"""Seconds of round trip from which on a source is far."""
FIRST, MOST, FACTOR = 4, 32, 4
"""Streams of a source that is far: at first, at most, and by how much an increase multiplies them."""
LEAST = 2 << 20
"""Bytes that a source must still have to deliver, for each stream, to be given more of them."""
FALLEN = 0.6
"""Part of its highest rate below which a source has lost more than what TCP gives up after one loss (0.3 of it)."""
WORTH = 1.15
"""How many times as fast as before a source must have become by an increase for another one to be tried."""
SETTLE, SETTLE_TRIPS = 0.5, 6.0
"""Seconds until an increase shows: this, and so many round trips."""


@dataclass(slots=True)
class Widening:
    """Decides how many streams one source has.

    >>> widening = Widening(rtt=0.02)
    >>> widening.begin(0.0, backlog=1 << 30)
    4
    >>> [widening.look(at, rate, 1 << 30) for at, rate in [(0.7, 9e6), (1.4, 4e6), (2.1, 8e6), (2.8, 5e6), (3.5, 5e6)]]
    [None, 16, None, 32, None]
    """

    rtt: float | None = None
    streams: int = 1
    _highest: float = 0.0
    _before: float = 0.0
    _again_at: float = 0.0
    _settled: bool = False

    def begin(self, now: float, backlog: int) -> int | None:
        """The number of streams to begin with, if it is not one.

        :param backlog: bytes that the source has to deliver
        """
        if self.streams > 1 or self.rtt is None or self.rtt < FAR or backlog < LEAST * FIRST:
            return None
        self.streams = FIRST
        self._wait(now)
        return FIRST

    def look(self, now: float, rate: float, backlog: int) -> int | None:
        """The number of streams from now on, if it changes.

        :param rate: bytes per second of all streams together, over the last second or so
        """
        if self.streams == 1 or self._settled or now < self._again_at:
            return None
        self._wait(now)
        self._highest = max(self._highest, rate)
        if rate >= WORTH * self._before:
            self._before = 0.0  # the last increase has helped
        if rate > FALLEN * self._highest:
            return None
        if self._before or self.streams >= MOST or backlog < LEAST * FACTOR * self.streams:
            self._settled = True
            return None
        self._before = rate
        self.streams = min(MOST, FACTOR * self.streams)
        return self.streams

    def _wait(self, now: float) -> None:
        self._again_at = now + SETTLE + SETTLE_TRIPS * (self.rtt or 0.0)
