"""How many parallel streams a source is worth. Pure; one `Widening` a source.

Over a short way one TCP stream is as fast as many. Over a long way one needs seconds to reach the link's rate, and
where packets are lost, be it one in a thousand, it never does (docs/explanation/distance.md has measurements). So a
source that is near keeps one stream; one that is far begins with some.

Whether more would help is seen by the round trip under load. On a way that is full packets queue, and the round trip is
longer than it was when nothing was sent. A way on which nothing has queued for a while, though the rate does not grow,
has room that these streams cannot use; so has one on which nothing queues when the rate has fallen by more than what
TCP gives up after one loss.
"""

from dataclasses import dataclass

__all__ = ["FIRST", "MOST", "Widening"]

FAR = 0.015
"""Seconds of round trip from which on a source is far."""
FIRST, MOST, FACTOR = 8, 32, 4
"""Streams of a source that is far: at first, at most, and by how much an increase multiplies them."""
LEAST = 2 << 20
"""Bytes that a source must still have to deliver, for each stream, to be given more of them."""
QUEUE, QUEUE_PART = 0.002, 0.02
"""Seconds, and part of the round trip, by which it is longer where packets queue."""
GROWING = 1.2
"""How many times as fast as before a source is that has not yet come to its rate."""
EMPTY, EMPTY_TRIPS = 0.5, 8.0
"""Seconds, and round trips, for which nothing queues on a way that has room: where it is full, TCP's ebb is shorter."""
FALLEN = 0.6
"""Part of its highest rate to which a source does not fall by one loss; TCP gives up 0.3 of it."""
WORTH = 1.15
"""How many times as fast as before a source must have become by an increase for another one to be tried."""
SETTLE, SETTLE_TRIPS = 0.25, 8.0
"""Seconds, and round trips, until an increase shows: the new streams connect, and begin slowly."""
LOOK, LOOK_TRIPS = 0.2, 2.0
"""Seconds, and round trips, over which a rate is measured."""


@dataclass(slots=True)
class Widening:
    """Decides how many streams one source has.

    >>> widening = Widening(rtt=0.02)
    >>> widening.begin(0.0, backlog=1 << 30)
    8
    >>> [widening.look(at, int(4e6 * at), 1 << 30, 0.02) for at in (0.5, 1.0, 1.5, 2.0)]
    [None, 32, None, None]
    """

    rtt: float | None = None
    streams: int = 1
    _again_at: float = 0.0
    _looked_at: float = 0.0
    _bytes: int = 0
    _rate: float = 0.0
    _highest: float = 0.0
    _queued_at: float = 0.0
    _before: float = 0.0

    def begin(self, now: float, backlog: int) -> int | None:
        """The number of streams to begin with, if it is not one.

        :param backlog: bytes that the source has to deliver
        """
        if self.streams > 1 or self.rtt is None or self.rtt < FAR or backlog < LEAST * FIRST:
            return None
        self.streams = FIRST
        self._wait(now)
        return FIRST

    def look(self, now: float, delivered: int, backlog: int, loaded: float | None) -> int | None:
        """The number of streams from now on, if it changes.

        :param delivered: bytes that have come over all streams so far
        :param loaded: seconds of the longest round trip on them now, if it is known
        """
        if self.rtt is None or self.streams == 1 or loaded is None:
            return None
        if loaded > self.rtt * (1 + QUEUE_PART) + QUEUE:
            self._queued_at = now
        if now < self._looked_at + LOOK + LOOK_TRIPS * self.rtt:
            return None
        rate, last = (delivered - self._bytes) / (now - self._looked_at), self._rate
        self._looked_at, self._bytes, self._rate = now, delivered, rate
        self._highest = max(self._highest, rate)
        empty = EMPTY + EMPTY_TRIPS * self.rtt if rate > FALLEN * self._highest else 0.0
        if now < self._again_at or now <= self._queued_at + empty or rate > GROWING * last:
            return None
        if self.streams >= MOST or backlog < LEAST * self.streams or rate < WORTH * self._before:
            return None
        self._before = rate
        self.streams = min(MOST, FACTOR * self.streams)
        self._wait(now)
        return self.streams

    def _wait(self, now: float) -> None:
        self._again_at = now + SETTLE + SETTLE_TRIPS * (self.rtt or 0.0)
