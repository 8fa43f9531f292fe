"""The number of parallel TCP streams of a source. Pure; one `Widening` per source.

On a path with a short round-trip time one stream is nearly as fast as many. On a long one a stream needs seconds to
reach the link's rate, and never does if one packet in a thousand is lost (docs/explanation/distance.md has
measurements). So a near source begins with one stream, a distant one with several.

More streams help in two cases. On a full path packets queue, so the round-trip time rises before packets are lost. If
packets are lost without a queue, the loss is random: each stream slows down as if the path were full, and more streams
lose less of the rate. And if packets do not queue for a while and the rate does not grow, the streams are limited by
something other than the path.

A single stream that loses packets to a full queue halves its rate, and leaves a part of the path unused until it has
regained it. A second stream uses that part.
"""

from dataclasses import dataclass

from coalloc.model.routes import PathState

__all__ = ["FIRST", "MOST", "Widening"]

FAR = 0.015
"""Minimum round-trip time in seconds of a distant source."""
FIRST, MOST, FACTOR = 8, 32, 4
"""Initial and maximum streams of a distant source, and the factor of an increase."""
NEAR = 0.001
"""Minimum round-trip time in seconds of a source for a second stream: a nearer one regains its rate within a moment."""
FAST = 10e6
"""Minimum bytes per second of a source for a second stream, as it costs processor time."""
LEAST = 2 << 20
"""Minimum backlog in bytes per stream for an increase."""
QUEUE, QUEUE_PART = 0.002, 0.02
"""Increase of the round-trip time that shows a queue: this many seconds plus this fraction of it."""
GROWING = 1.2
"""Ratio of two successive measured rates above which the rate is still growing."""
EMPTY, EMPTY_TRIPS = 0.5, 8.0
"""Seconds plus round trips without a queue after which a path is not full: TCP fills a full path again sooner."""
CHANCE = 2
"""Number of calls of `look` with lost packets, without a queue in between, from which losses count as random."""
AFTER, AFTER_TRIPS = 0.1, 4.0
"""Seconds plus round trips after a queue in which losses are attributed to it."""
STEADY = 0.05
"""Fraction below its highest rate within which a source is not slowed down by losses, as its TCP recognises them as
random.
"""
WORTH = 1.15
"""Minimum factor by which an increase must have raised the rate for another one."""
SETTLE, SETTLE_TRIPS = 0.25, 8.0
"""Seconds plus round trips until an increase takes effect, as new streams connect and begin slowly."""
LOOK, LOOK_TRIPS = 0.2, 2.0
"""Seconds plus round trips over which a rate is measured."""


@dataclass(slots=True)
class Widening:
    """The state and rule for the number of streams of one source.

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
    _all_losses: int = 0
    _before: float = 0.0

    def begin(self, now: float, backlog: int) -> int | None:
        """Return the initial number of streams; None to keep the present number.

        :param backlog: bytes that the source has to deliver
        """
        if self.streams > 1 or self.rtt is None or self.rtt < FAR or backlog < LEAST * FIRST:
            return None
        self.streams = FIRST
        self._wait(now)
        return FIRST

    def look(self, now: float, delivered: int, backlog: int, path: PathState | None) -> int | None:
        """Return the new number of streams; None to keep the present number.

        :param delivered: bytes received over all streams so far
        :param backlog: bytes that the source still has to deliver
        :param path: state of the network path, if known
        """
        if self.rtt is None or path is None:
            return None
        self._watch(now, path)
        self._measure(now, delivered)
        if not (self._by_chance(now) or self._held_back(now)):
            return self._second(backlog)
        if self.streams >= MOST or backlog < LEAST * self.streams or self._rate < WORTH * self._before:
            return None
        self._before = self._rate
        self.streams = min(MOST, max(FIRST, FACTOR * self.streams))
        self._wait(now)
        return self.streams

    def _second(self, backlog: int) -> int | None:
        """Return 2 if a single fast stream has lost packets; else None."""
        if self.streams > 1 or not self._all_losses or backlog < LEAST * 2:
            return None
        if (self.rtt or 0.0) < NEAR or self._rate < FAST:
            return None
        self.streams = 2
        return 2

    def _watch(self, now: float, path: PathState) -> None:
        """Record whether packets queue, and whether packets were lost without a queue."""
        if path.rtt > (self.rtt or 0.0) * (1 + QUEUE_PART) + QUEUE:
            self._queued_at, self._losses = now, 0
        elif now > self._queued_at + AFTER + AFTER_TRIPS * (self.rtt or 0.0):
            self._losses += path.disordered > self._disordered
        self._all_losses += path.disordered > self._disordered
        self._disordered = path.disordered

    def _measure(self, now: float, delivered: int) -> None:
        """Measure the rate, if enough time has passed since the last measurement."""
        if now < self._looked_at + LOOK + LOOK_TRIPS * (self.rtt or 0.0):
            return
        last, self._rate = self._rate, (delivered - self._bytes) / (now - self._looked_at)
        self._looked_at, self._bytes = now, delivered
        self._highest = max(self._highest, self._rate)
        self._growing = self._rate > GROWING * last
        self._steady = min(self._rate, last) > (1 - STEADY) * self._highest

    def _by_chance(self, now: float) -> bool:
        """Return whether random losses slow the streams down."""
        slow = not (self._growing or self._steady)
        return self._losses >= CHANCE and slow and (not self._before or now >= self._again_at)

    def _held_back(self, now: float) -> bool:
        """Return whether several streams do not get faster although the path is not full."""
        empty = now > self._queued_at + EMPTY + EMPTY_TRIPS * (self.rtt or 0.0)
        return self.streams >= FIRST and empty and not self._growing and now >= self._again_at

    def _wait(self, now: float) -> None:
        self._again_at = now + SETTLE + SETTLE_TRIPS * (self.rtt or 0.0)
