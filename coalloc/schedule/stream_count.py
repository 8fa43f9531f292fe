"""The number of parallel streams that a source is worth. Pure; one `Widening` per source.

Over a short path one TCP stream is as fast as many. Over a long path one stream needs seconds to reach the link's rate,
and if even one packet in a thousand is lost, it never does (docs/explanation/distance.md has measurements). So a near
source begins with one stream, a distant one with several.

Two observations show whether more streams would help. On a full path packets queue: the round-trip time is longer than
it was when nothing was sent, and then packets are lost. If packets are lost without a queue, that is by chance, and
each stream yields to it as if the path were full: more streams yield less. And if nothing queues for a while and the
rate does not grow, something else holds these streams back.
"""

from dataclasses import dataclass

from coalloc.model import PathState

__all__ = ["FIRST", "MOST", "Widening"]

FAR = 0.015
"""Round-trip time in seconds from which a source is distant."""
FIRST, MOST, FACTOR = 8, 32, 4
"""Streams of a distant source: at first, at most, and the factor of an increase."""
LEAST = 2 << 20
"""Bytes per stream that a source must still have to deliver to be given more streams."""
QUEUE, QUEUE_PART = 0.002, 0.02
"""Increase of the round-trip time where packets queue, in seconds and as a part of it."""
GROWING = 1.2
"""Factor between two measured rates above which a source has not yet reached its rate."""
EMPTY, EMPTY_TRIPS = 0.5, 8.0
"""Seconds, and round trips, without a queue after which a path has room: on a full path, TCP's ebb is shorter."""
CHANCE = 2
"""Number of looks with lost packets, and no queue since the first, that are more than an accident."""
AFTER, AFTER_TRIPS = 0.1, 4.0
"""Seconds, and round trips, after packets queued, in which packets may still be lost for that reason."""
STEADY = 0.05
"""Distance from its highest rate, as a part of it, within which a source is not slowed down by losses: its TCP
recognises them as random.
"""
WORTH = 1.15
"""Factor by which an increase must have raised the rate for another increase to be tried."""
SETTLE, SETTLE_TRIPS = 0.25, 8.0
"""Seconds, and round trips, until an increase has its effect: the new streams connect, and begin slowly."""
LOOK, LOOK_TRIPS = 0.2, 2.0
"""Seconds, and round trips, over which a rate is measured."""


@dataclass(slots=True)
class Widening:
    """Decides how many streams one source has.

    >>> widening = Widening(rtt=0.02)
    >>> widening.begin(0.0, backlog=1 << 30)
    8
    >>> [widening.look(at, int(4e6 * at), 1 << 30, PathState(rtt=0.02)) for at in (0.5, 1.0, 1.5, 2.0)]
    [None, 32, None, None]
    """

    rtt: float | None = None
    streams: int = 1
    _again_at: float = 0.0
    _looked_at: float = 0.0
    _bytes: int = 0
    _rate: float = 0.0
    _highest: float = 0.0
    _growing: bool = True
    _steady: bool = False
    _queued_at: float = 0.0
    _disordered: int = 0
    _losses: int = 0
    _before: float = 0.0

    def begin(self, now: float, backlog: int) -> int | None:
        """Return the number of streams to begin with, if it is not one.

        :param backlog: bytes that the source has to deliver
        """
        if self.streams > 1 or self.rtt is None or self.rtt < FAR or backlog < LEAST * FIRST:
            return None
        self.streams = FIRST
        self._wait(now)
        return FIRST

    def look(self, now: float, delivered: int, backlog: int, path: PathState | None) -> int | None:
        """Return the new number of streams, if it changes.

        :param delivered: bytes that have come over all streams so far
        :param way: the path of the data
        """
        if self.rtt is None or path is None:
            return None
        self._watch(now, path)
        self._measure(now, delivered)
        if not (self._by_chance(now) or self._held_back(now)):
            return None
        if self.streams >= MOST or backlog < LEAST * self.streams or self._rate < WORTH * self._before:
            return None
        self._before = self._rate
        self.streams = min(MOST, max(FIRST, FACTOR * self.streams))
        self._wait(now)
        return self.streams

    def _watch(self, now: float, path: PathState) -> None:
        """Record whether packets queue, and whether some were lost without a queue."""
        if path.rtt > (self.rtt or 0.0) * (1 + QUEUE_PART) + QUEUE:
            self._queued_at, self._losses = now, 0
        elif now > self._queued_at + AFTER + AFTER_TRIPS * (self.rtt or 0.0):
            self._losses += path.disordered > self._disordered
        self._disordered = path.disordered

    def _measure(self, now: float, delivered: int) -> None:
        """Measure the rate."""
        if now < self._looked_at + LOOK + LOOK_TRIPS * (self.rtt or 0.0):
            return
        last, self._rate = self._rate, (delivered - self._bytes) / (now - self._looked_at)
        self._looked_at, self._bytes = now, delivered
        self._highest = max(self._highest, self._rate)
        self._growing = self._rate > GROWING * last
        self._steady = min(self._rate, last) > (1 - STEADY) * self._highest

    def _by_chance(self, now: float) -> bool:
        """Return whether packets are lost by chance, and slow these streams down."""
        slow = not (self._growing or self._steady)
        return self._losses >= CHANCE and slow and (not self._before or now >= self._again_at)

    def _held_back(self, now: float) -> bool:
        """Return whether several streams are slow without a visible reason."""
        empty = now > self._queued_at + EMPTY + EMPTY_TRIPS * (self.rtt or 0.0)
        return self.streams > 1 and empty and not self._growing and now >= self._again_at

    def _wait(self, now: float) -> None:
        self._again_at = now + SETTLE + SETTLE_TRIPS * (self.rtt or 0.0)
