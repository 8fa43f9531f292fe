"""The distribution of errors of past forecasts: own ones beside those of public traces. Pure."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from itertools import accumulate
from math import exp, log

__all__ = ["HALF", "ErrorDistribution"]

TAIL = 0.5
"""Mean excess of errors beyond the known ones, which are taken as exponential: no error is impossible."""
HALF = 30
"""Number of own errors that weigh as much as all others."""


class ErrorDistribution:
    """Errors with their weights, which add up to 1. Between two errors, the distribution is linear.

    :param known: errors and weights, in any order
    """

    def __init__(self, known: Iterable[tuple[float, float]]) -> None:
        ordered = sorted(known)
        self._errors = [z for z, _ in ordered]
        sums = accumulate(share for _, share in ordered)
        self._shares = [total - share / 2 for total, (_, share) in zip(sums, ordered, strict=True)]

    def quantile(self, probability: float) -> float:
        """Return the error that is not exceeded with this probability, which is neither 0 nor 1."""
        after = bisect_left(self._shares, probability)
        if after == 0:
            return self._errors[0] - TAIL * log(self._shares[0] / probability)
        if after == len(self._shares):
            return self._errors[-1] + TAIL * log((1 - self._shares[-1]) / (1 - probability))
        low, high = self._shares[after - 1], self._shares[after]
        part = (probability - low) / (high - low)
        return self._errors[after - 1] + part * (self._errors[after] - self._errors[after - 1])

    def chance(self, error: float) -> float:
        """Return the probability that an error is at most so large: the inverse of `quantile`."""
        after = bisect_right(self._errors, error)
        if after == 0:
            return self._shares[0] * exp((error - self._errors[0]) / TAIL)
        if after == len(self._errors):
            return 1 - (1 - self._shares[-1]) * exp((self._errors[-1] - error) / TAIL)
        low, high = self._errors[after - 1], self._errors[after]
        share = self._shares[after - 1]
        return share + (error - low) / (high - low) * (self._shares[after] - share)
