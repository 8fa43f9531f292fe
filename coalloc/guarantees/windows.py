"""The rate of a transfer in short windows, and how far forecasts from such windows err. Pure; time is an argument."""

from itertools import accumulate
from math import exp, log, sqrt
from operator import itemgetter

__all__ = ["UNKNOWN", "RateWindows"]

LENGTH = 1.0
"""Seconds of a window at first, within the 0.1 to 1 s of IQ-Paths, section VI-A."""
MOST = 256
"""Number of windows at which each two neighbours become one, so that a long transfer is remembered to its beginning."""
MEMORIES = (5.0, 20.0, 80.0)
"""Windows after which the weight of a window has fallen to 1/e, in three forecasts, of which the best is used."""
DECAYS = [exp(-1 / memory) for memory in MEMORIES]
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
        self._means = [_Mean(decay) for decay in DECAYS]
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
            self._append(max(0.0, at_edge - self._bytes_at_edge) / self._length)
            self._bytes_at_edge = at_edge
            if len(self._rates) == MOST:
                self._merge()
        self._last_bytes, self._last_at = nbytes, now

    def _append(self, rate: float) -> None:
        self._rates.append(rate)
        for mean in self._means:
            mean.append(rate)

    def _merge(self) -> None:
        merged = [(a + b) / 2 for a, b in zip(self._rates[::2], self._rates[1::2], strict=True)]
        self._forget()
        for rate in merged:
            self._append(rate)
        self._length *= 2

    def _forget(self) -> None:
        self._rates, self._means = [], [_Mean(decay) for decay in DECAYS]

    def pause(self) -> None:
        """Leave out the time from the last full window to the next `add`: nothing was requested."""
        self._edge = None

    def restart(self, seconds: float) -> None:
        """Forget all rates, as other sources are used from now on, but not how much rates vary over some seconds."""
        known = self.forecast(seconds)
        self._length = LENGTH
        self._usual, self._edge = known[1] if known else self._usual, None
        self._forget()

    def forecast(self, seconds: float) -> tuple[float, float] | None:
        """Return the expected rate over so many seconds, in bytes per second, and its spread; None without windows."""
        if not self._rates:
            return None
        spread, mean = min(((self._spread(seconds, mean), mean) for mean in self._means), key=itemgetter(0))
        return mean.after[-1], spread

    def _spread(self, seconds: float, mean: "_Mean") -> float:
        count = len(self._rates)
        if count < 2:
            return self._usual
        ahead = max(1, min(round(seconds / self._length), count // 3))
        sums = [0.0, *accumulate(self._rates)]
        actual = [(after - before) / ahead for before, after in zip(sums[1:], sums[1 + ahead :], strict=False)]
        errors = [_error(*each) ** 2 for each in zip(actual, mean.after, strict=False)]
        disjoint = count / ahead
        measured = disjoint * sum(errors) / len(errors)
        return max(LEAST, sqrt((measured + TRUST * self._usual**2) / (disjoint + TRUST)))


class _Mean:
    """An exponentially weighted mean.

    :ivar after: its value after each window
    """

    def __init__(self, decay: float) -> None:
        self._decay = decay
        self._total = self._weight = 0.0
        self.after: list[float] = []

    def append(self, rate: float) -> None:
        self._total, self._weight = self._total * self._decay + rate, self._weight * self._decay + 1
        self.after.append(self._total / self._weight)


def _error(actual: float, forecast: float) -> float:
    if not (actual and forecast):
        return 0.0 if actual == forecast else MOST_OF
    return min(MOST_OF, abs(log(actual / forecast)))
