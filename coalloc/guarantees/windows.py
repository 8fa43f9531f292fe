"""The rate of a transfer in short windows, and how far forecasts from such windows err. Pure; time is an argument."""

from itertools import accumulate
from math import exp, log, sqrt

__all__ = ["UNKNOWN", "RateWindows"]

LENGTH = 1.0
"""Seconds of a window at first, within the 0.1 to 1 s of IQ-Paths, section VI-A."""
MOST = 256
"""Number of windows at which each two neighbours become one, so that a long transfer is remembered to its beginning."""
MEMORY = 5.0
"""Windows after which the weight of a window in the forecast has fallen to 1/e."""
UNKNOWN = 0.35
"""Spread while nothing is measured."""
TRUST = 3.0
"""Weight of the spread that was known before, as a number of disjoint intervals."""
LEAST, MOST_OF = 0.02, 3.0
"""Minimum of the spread, as no path is steadier; maximum of a single error, as a pause has no logarithm."""


class RateWindows:
    """The rates of consecutive windows of one transfer.

    The *spread* for some seconds is the typical error, as the logarithm of the factor, of forecasts of the mean rate
    over the next so many seconds. It is measured: each window was the end of a past that allowed a forecast, which can
    be compared with the windows that followed. So correlated windows are accounted for.

    :param usual: the spread while no windows are known
    """

    def __init__(self, usual: float = UNKNOWN) -> None:
        self._usual = usual
        self._length = LENGTH
        self._rates: list[float] = []
        self._edge: float | None = None
        self._bytes_at_edge = self._last_bytes = 0.0
        self._last_at = 0.0

    def add(self, nbytes: float, now: float) -> None:
        """Record that `nbytes` have arrived in all by `now`. Between two calls, the rate counts as constant."""
        if self._edge is None:
            self._edge, self._bytes_at_edge = now, nbytes
        while now >= self._edge + self._length:
            self._edge += self._length
            share = (self._edge - self._last_at) / (now - self._last_at)
            at_edge = self._last_bytes + share * (nbytes - self._last_bytes)
            self._rates.append(max(0.0, at_edge - self._bytes_at_edge) / self._length)
            self._bytes_at_edge = at_edge
            if len(self._rates) == MOST:
                self._rates = [(a + b) / 2 for a, b in zip(self._rates[::2], self._rates[1::2], strict=True)]
                self._length *= 2
        self._last_bytes, self._last_at = nbytes, now

    def restart(self, seconds: float) -> None:
        """Forget all rates, as other sources are used from now on, but not how much rates vary over some seconds."""
        self._usual, self._rates, self._edge = self.spread(seconds), [], None

    @property
    def rate(self) -> float | None:
        """The forecast in bytes per second: the mean of the last windows, exponentially weighted; None without any."""
        return _forecasts(self._rates)[-1] if self._rates else None

    def spread(self, seconds: float) -> float:
        """Return the spread for forecasts over so many seconds."""
        count = len(self._rates)
        ahead = max(1, min(round(seconds / self._length), count // 3))
        if count < 2:
            return self._usual
        sums, made = [0.0, *accumulate(self._rates)], _forecasts(self._rates)
        errors = [
            _error((sums[at + ahead] - sums[at]) / ahead, made[at - 1]) ** 2 for at in range(1, count - ahead + 1)
        ]
        disjoint = count / ahead
        measured = disjoint * sum(errors) / len(errors)
        return max(LEAST, sqrt((measured + TRUST * self._usual**2) / (disjoint + TRUST)))


def _forecasts(rates: list[float]) -> list[float]:
    """Return the forecast after each window."""
    decay, total, weight, made = exp(-1 / MEMORY), 0.0, 0.0, []
    for rate in rates:
        total, weight = total * decay + rate, weight * decay + 1
        made.append(total / weight)
    return made


def _error(actual: float, forecast: float) -> float:
    if not (actual and forecast):
        return 0.0 if actual == forecast else MOST_OF
    return min(MOST_OF, abs(log(actual / forecast)))
