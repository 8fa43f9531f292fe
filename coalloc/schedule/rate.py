"""How fast a source is now: one small estimator, fed by the bytes that arrive. Pure; time is an argument."""

from math import exp

__all__ = ["RateMeter"]


class RateMeter:
    """Bytes per second over roughly the last `memory` seconds of fetching, starting from a forecast.

    Bytes and seconds are both summed with exponential forgetting and divided, so that silence lowers the
    rate as surely as bytes raise it, however irregular the arrivals. The forecast counts as `trust`
    seconds of earlier observation.

    >>> meter = RateMeter(prior=None)
    >>> meter.begin(0.0)
    >>> for i in range(1, 1001): meter.add(1_000, i / 1000)
    >>> round(meter.rate(1.0), -4)
    1000000.0
    """

    __slots__ = ("_at", "_bytes", "_memory", "_seconds")

    def __init__(self, prior: float | None, *, memory: float = 1.0, trust: float = 0.3) -> None:
        self._memory = memory
        self._bytes = prior * trust if prior else 0.0
        self._seconds = trust if prior else 0.0
        self._at: float | None = None

    def begin(self, now: float) -> None:
        """Bytes flow from now on: what was set-up or waiting until here does not count."""
        self._at = now

    def pause(self, now: float) -> None:
        """Nothing is asked of the source from now on; silence until here counts."""
        self._bytes, self._seconds = self._sums(now)
        self._at = None

    def add(self, nbytes: int, now: float) -> None:
        """`nbytes` arrived at `now`, after `begin`."""
        self._bytes, self._seconds = self._sums(now)
        self._bytes += nbytes
        self._at = now

    def rate(self, now: float) -> float | None:
        """Bytes per second, or None while there is neither forecast nor a measurement of 10 ms."""
        nbytes, seconds = self._sums(now)
        return nbytes / seconds if seconds >= 0.01 else None

    def _sums(self, now: float) -> tuple[float, float]:
        if self._at is None or now <= self._at:
            return self._bytes, self._seconds
        kept = exp((self._at - now) / self._memory)
        return self._bytes * kept, self._seconds * kept + self._memory * (1 - kept)
