"""The distribution of the time at which a transfer finishes. Pure.

The forecast is the bytes left divided by the rate. Its error is the logarithm of actual divided by forecast seconds, in
units of the spread (`windows`), so that errors on steady and on noisy paths can be pooled.
"""

from collections.abc import Sequence
from math import exp, inf, log
from typing import NamedTuple

from coalloc.guarantees.error_distribution import HALF, ErrorDistribution

__all__ = ["FinishErrors", "FinishForecast"]

PRIOR = (
    *(-2.71, -2.25, -1.99, -1.82, -1.66, -1.53, -1.41, -1.34, -1.24, -1.2, -1.15, -1.08, -1.04, -0.99, -0.95),
    *(-0.9, -0.85, -0.8, -0.76, -0.72, -0.68, -0.65, -0.61, -0.58, -0.55, -0.52, -0.49, -0.46, -0.44, -0.41),
    *(-0.39, -0.37, -0.34, -0.32, -0.3, -0.28, -0.27, -0.25, -0.24, -0.22, -0.21, -0.19, -0.18, -0.16, -0.14),
    *(-0.13, -0.11, -0.1, -0.09, -0.07, -0.05, -0.04, -0.03, -0.02, -0.01, 0.0, 0.02, 0.03, 0.04, 0.05),
    *(0.06, 0.08, 0.09, 0.1, 0.12, 0.13, 0.15, 0.16, 0.19, 0.2, 0.22, 0.24, 0.26, 0.27, 0.3),
    *(0.32, 0.34, 0.35, 0.39, 0.42, 0.46, 0.48, 0.52, 0.55, 0.58, 0.61, 0.65, 0.7, 0.73, 0.79),
    *(0.86, 0.94, 1.01, 1.12, 1.23, 1.36, 1.49, 1.62, 1.81, 2.3),
)
"""Quantiles of errors in public traces (Puffer, Oboe, HSDPA; forecasts of 10 s to 1 h), at 0.005, 0.015, ... 0.995.

tests/benchmarks/deadlines.py computes them, and shows how often bounds hold on traces that they were not made from.
"""


class FinishErrors(ErrorDistribution):
    """Errors of forecasts of transfers that have ended: this user's own ones, beside those of `PRIOR`.

    An error must not be added before its transfer has ended.

    :param own: own errors, at most some hundreds
    """

    def __init__(self, own: Sequence[float] = (), prior: Sequence[float] = PRIOR) -> None:
        weight = len(own) / (len(own) + HALF)
        super().__init__([(z, weight / len(own)) for z in own] + [(z, (1 - weight) / len(prior)) for z in prior])


class FinishForecast(NamedTuple):
    """The forecast for the bytes that are left, made at one moment.

    :param seconds: seconds until they have arrived, at the expected rate
    :param spread: unit of the error, as the logarithm of a factor
    """

    seconds: float
    spread: float

    def within(self, probability: float, errors: FinishErrors) -> float:
        """Return the seconds within which the transfer ends with this probability."""
        return self.seconds * exp(self.spread * errors.quantile(probability))

    def chance(self, seconds: float, errors: FinishErrors) -> float:
        """Return the probability that the transfer ends within so many seconds."""
        if self.seconds <= 0:
            return 1.0
        if seconds <= 0 or self.seconds == inf:
            return 0.0
        return errors.chance(log(seconds / self.seconds) / self.spread)

    def error(self, actual: float) -> float:
        """Return the error of this forecast, once the actual seconds are known. Both must be positive."""
        return log(actual / self.seconds) / self.spread
