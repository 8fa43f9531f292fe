"""The rate of a pair of hosts, from its arrivals: r_xy of Confluence (3.4, 4.1). Pure; time is an argument."""

from collections import deque

__all__ = ["MEMORY", "PairRateMeter"]

MEMORY = 5.0
"""Most seconds over which a rate is averaged."""
RAMP = 1.0
"""Seconds after a pair's first byte that do not count, and seconds that must follow before its rate is known.

TCP doubles its rate each round trip, exceeds the capacity, and reduces it again: these rates are not representative.
"""


class PairRateMeter:
    """Bytes per second over the last seconds in which a pair had enough to send.

    The time before the first byte is set-up and does not count, unless it takes too long. Time without anything to send
    does not count at all. Bytes under way now are assumed to continue at the same rate, until they are late.

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

    __slots__ = ("_asked", "_counts_from", "_samples", "_seconds", "_since")

    def __init__(self) -> None:
        self._samples: deque[tuple[float, int]] = deque()
        self._seconds = 0.0
        self._asked = 0.0
        self._since: float | None = None
        self._counts_from: float | None = None

    def begin(self, now: float) -> None:
        """Record that there is something to send from now on."""
        self._asked, self._since = now, None

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
            waited = now - (self._asked if self._since is None else self._since)
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
