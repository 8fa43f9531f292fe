"""An estimator of a source's current rate from the bytes that arrive. Pure; time is an argument."""

from math import exp, inf

__all__ = ["RateMeter"]

MEMORY, MOMENT = 1.0, 0.25
"""Time constants in seconds of the long-term and the short-term rate: the weight of bytes falls to 1/e in this time."""
TRUST = 0.3
"""Weight of a forecast, as seconds of measurement."""
LEAST, MOST_OF = 0.01, 0.9
"""Seconds of measurement needed for a rate; fraction of MOMENT needed for the short-term rate."""
CHANGED = 1.5
"""Factor by which the short-term rate must differ from the long-term rate to replace it."""


class RateMeter:
    """The bytes per second of a source over roughly the last second of fetching, starting from a forecast.

    The rate is the quotient of bytes and seconds, both summed with exponential forgetting, so silence lowers it and
    irregular arrivals do not distort it. If the short-term rate is much lower or higher than the long-term one, the
    source's rate has changed, and the short-term rate is returned.

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
        """Start counting time now: earlier set-up or waiting does not count, except time since `hold`."""
        if self._held_at < inf:
            self.add(0, now)
        self._at = now

    def hold(self, now: float) -> None:
        """Keep the rate unchanged from now until the next bytes arrive; the time in between counts then."""
        self._at = now if self._at is None else self._at
        self._held_at = now

    def pause(self, now: float) -> None:
        """Stop counting time, as nothing is requested from the source any more; silence until now counts."""
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
        """Return the bytes per second; None while there is neither a forecast nor enough measurement."""
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
        """Return bytes and seconds after `elapsed` seconds of silence."""
        if elapsed <= 0.0:
            return self.bytes, self.seconds
        decay = exp(-elapsed / self.memory)
        return self.bytes * decay, self.seconds * decay + self.memory * (1 - decay)
