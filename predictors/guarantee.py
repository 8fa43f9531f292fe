"""Guarantees of rates: percentile bounds, bounds that correct themselves, and IQ-Paths' two lemmas.

A *miss* is one sample below its bound. The "failure rate of the prediction" in IQ-Paths (section 6.1, figure 7) is
about the next n samples, and has two readings, which `window_misses` computes: their mean is below the bound, or any
one of them is. On real traces the two rates differ by a factor of four to ten.
"""

from array import array
from bisect import bisect_left, insort
from collections.abc import Sequence
from math import ceil, fsum

from predictors.observation import Rates

__all__ = ["AdaptiveLevel", "Conformal", "Percentile", "expected_shortfall", "service_probability", "window_misses"]


class Percentile:
    """IQ-Paths' percentile prediction, section 6.1: X is a low percentile of the last N samples. The baseline.

    :param level: share of samples that should lie below X
    :param most: N
    """

    def __init__(self, level: float = 0.1, most: int = 500) -> None:
        self._level = level
        self._most = most
        self._samples = array("d")
        self._sorted = array("d")

    def learn(self, value: float) -> None:
        """Learn the next sample."""
        if len(self._samples) == self._most:
            del self._sorted[bisect_left(self._sorted, self._samples.pop(0))]
        self._samples.append(value)
        insort(self._sorted, value)

    def at(self, level: float) -> float | None:
        """Return the sample below which a share of `level` lies; None without samples."""
        if not self._sorted:
            return None
        return self._sorted[min(len(self._sorted) - 1, max(0, ceil(level * len(self._sorted)) - 1))]

    def bound(self) -> float | None:
        """Return X; None without samples."""
        return self.at(self._level)


class AdaptiveLevel:
    """The level at which to read a quantile so that, in the long run, a share of exactly `target` lies below it.

    Source: adaptive conformal inference, Gibbs and Candes (2021): after each sample the level moves by
    gain x (target - missed). It guarantees the share of misses over any long period, for any series, and nothing about
    a single sample.

    >>> level = AdaptiveLevel(0.1, gain=0.05)
    >>> level.learn(missed=True); round(level.level, 4)
    0.055
    """

    def __init__(self, target: float, gain: float) -> None:
        self._target = target
        self._gain = gain
        self.level = target

    def learn(self, missed: bool) -> None:
        """Learn whether the bound read at `level` was missed. The level may leave [0, 1]: then no bound is safe."""
        self.level += self._gain * (self._target - missed)


class Conformal:
    """Quantiles of future values, around point forecasts: recent errors, corrected by the misses of the bounds.

    Errors are ratios of the actual value to the forecast, so that bounds scale with it. `bounds` are tested on every
    new value, and the level at which each is read follows its misses (`AdaptiveLevel`).

    :param levels: shares of values that should lie below each bound, ascending
    :param most: number of errors kept
    """

    def __init__(self, levels: Sequence[float] = (0.1, 0.9), most: int = 500, gain: float = 0.02) -> None:
        self._errors = Percentile(most=most)
        self._read = [AdaptiveLevel(level, gain) for level in levels]

    def learn(self, forecast: float, actual: float) -> None:
        """Learn a forecast and the actual value; both are positive."""
        error = actual / forecast
        for read, factor in zip(self._read, self.factors(), strict=True):
            if factor is not None:
                read.learn(error < factor)
        self._errors.learn(error)

    def around(self, forecast: float) -> Rates:
        """Return the forecast with its bounds; both equal the forecast while no errors are known."""
        low, high = (1.0 if factor is None else factor for factor in self.factors())
        return Rates(forecast * min(low, 1.0), forecast, forecast * max(high, 1.0))

    def factors(self) -> list[float | None]:
        """Return the ratio of the bound to the forecast for each level; None while no errors are known."""
        return [self._errors.at(read.level) for read in self._read]


def service_probability(samples: Sequence[float], needed: float) -> float:
    """Return the probability that a stream gets the rate that it needs in a scheduling window (lemma 1).

    IQ-Paths writes it for x packets of s bytes in t_w seconds: P = 1 - F(x s / t_w), F the distribution of the
    available bandwidth. Failure: the bandwidth in the window is below x s / t_w, so that not all x are served.

    :param samples: observed bandwidths (F), in any unit of rate
    :param needed: x s / t_w, in the same unit

    >>> service_probability([1.0, 2.0, 3.0, 4.0], needed=2.0)
    0.75
    """
    return sum(sample >= needed for sample in samples) / len(samples)


def expected_shortfall(samples: Sequence[float], packets: float, packet_bytes: float, window: float) -> float:
    """Return an upper bound of the mean number of packets that miss their deadline in a scheduling window (lemma 2).

    E[Z] <= x F(b0) - (t_w / s) M[b0] F(b0), where b0 = x s / t_w and M[b0] is the mean of the bandwidths up to b0. (The
    paper leaves out the last F(b0), which its own proof needs: the integral of b f(b) up to b0 is the mean below b0
    times the probability of being there.) Failure: a packet that is not served within the window.

    :param samples: observed bandwidths, bytes per second
    :param packets: x, the packets to be served in one window
    :param packet_bytes: s
    :param window: t_w, seconds

    >>> expected_shortfall([50.0, 100.0, 200.0, 200.0], packets=10, packet_bytes=10, window=1)
    1.25
    """
    needed = packets * packet_bytes / window
    return fsum(max(0.0, packets - sample * window / packet_bytes) for sample in samples if sample <= needed) / len(
        samples
    )


def window_misses(bounds: Sequence[float], actuals: Sequence[float], length: int) -> tuple[float, float]:
    """Return how often a bound fails for the next `length` samples: by their mean, and by any one of them.

    :param bounds: bounds, one before each sample
    :param actuals: the samples
    """
    starts = range(len(actuals) - length + 1)
    mean = sum(fsum(actuals[i : i + length]) / length < bounds[i] for i in starts)
    any_one = sum(min(actuals[i : i + length]) < bounds[i] for i in starts)
    return mean / len(starts), any_one / len(starts)
