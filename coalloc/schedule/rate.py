"""An estimator of a source's current rate, fed by the bytes that arrive. Pure; time is an argument."""

from math import exp, inf

__all__ = ["RateMeter"]

MEMORY, MOMENT = 1.0, 0.25
"""Seconds after which bytes count for a third: in the long-term and in the short-term estimate."""
TRUST = 0.3
"""Seconds of observation that a forecast counts as."""
LEAST, MOST_OF = 0.01, 0.9
"""Seconds of measurement from which there is a rate; part of MOMENT from which the short-term estimate is used."""
CHANGED = 1.5
"""Factor by which the short-term rate must differ from the long-term rate to replace it."""


class RateMeter:
    """Bytes per second over roughly the last second of fetching, starting from a forecast.

    Bytes and seconds are both summed with exponential forgetting and divided, so that silence lowers the rate as surely
    as bytes raise it, however irregular the arrivals. A source whose rate has changed is judged by the time since then:
    the short-term rate counts alone when it is much lower, or higher, than the long-term one.

    >>> meter = RateMeter(prior=None)
    >>> meter.begin(0.0)
    >>> for i in range(1, 1001): meter.add(1_000, i / 1000)
    >>> round(meter.rate(1.0), -4)
    1000000.0
    """

    __slots__ = ("_at", "_held_at", "_long", "_short")

    def __init__(self, prior: float | None) -> None:
        self._long = _Sums(MEMORY, prior)
        self._short = _Sums(MOMENT, None)
        self._at: float | None = None
        self._held_at = inf

    def begin(self, now: float) -> None:
        """Begin to count: set-up or waiting before now does not count, except time in which the source was held."""
        if self._held_at < inf:
            self.add(0, now)
        self._at = now

    def hold(self, now: float) -> None:
        """Suspend the count until the next bytes arrive: the time counts then, as the rate is unchanged until then."""
        self._at = now if self._at is None else self._at
        self._held_at = now

    def pause(self, now: float) -> None:
        """Stop counting, as nothing is requested from the source from now on; silence until now counts."""
        self._pass(min(now, self._held_at), 0)
        self._at, self._held_at = None, inf

    def add(self, nbytes: int, now: float) -> None:
        """Count `nbytes` that arrived at `now`, after `begin`."""
        self._pass(now, nbytes)
        self._at, self._held_at = now, inf

    def _pass(self, now: float, nbytes: int) -> None:
        elapsed = 0.0 if self._at is None else now - self._at
        for sums in (self._long, self._short):
            sums.bytes, sums.seconds = sums.after(elapsed)
            sums.bytes += nbytes

    def rate(self, now: float) -> float | None:
        """Return the bytes per second, or None while there is neither a forecast nor a measurement."""
        elapsed = 0.0 if self._at is None else min(now, self._held_at) - self._at
        (nbytes, seconds), (lately, moment) = self._long.after(elapsed), self._short.after(elapsed)
        if seconds < LEAST:
            return None
        rate = nbytes / seconds
        if moment >= MOST_OF * MOMENT and not rate / CHANGED < lately / moment < rate * CHANGED:
            return lately / moment
        return rate


class _Sums:
    """Bytes and seconds, with exponential forgetting."""

    __slots__ = ("bytes", "memory", "seconds")

    def __init__(self, memory: float, prior: float | None) -> None:
        self.memory = memory
        self.bytes = prior * TRUST if prior else 0.0
        self.seconds = TRUST if prior else 0.0

    def after(self, elapsed: float) -> tuple[float, float]:
        """Return both sums after so many seconds of silence."""
        if elapsed <= 0.0:
            return self.bytes, self.seconds
        decay = exp(-elapsed / self.memory)
        return self.bytes * decay, self.seconds * decay + self.memory * (1 - decay)
