"""Quality of forecasts as sums: the measures of `predictors.metrics`, for any number of forecasts.

Sums can be added, and subtracted, in any order, with identical results to the last bit: real numbers are rounded to
about a millionth, 2^-20, before they are added, so that no sum below 2^33 is ever rounded.

Medians come from counts of relative errors by steps, each 2 % wider than the one before (DDSketch: Masson, Rim and Lee,
VLDB 2019): a median computed from them has a relative error of at most 1 %, or is reported as 0 if it is below 0.1 %.
"""

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from math import ceil, exp, log, sqrt
from typing import Self

from predictors.metrics import CLOSE, MOST
from predictors.observation import Rates

__all__ = ["ACCURACY", "LEAST", "Tally", "middle", "step_of"]

ACCURACY = 0.01
"""Maximum relative error of a median."""
LEAST = 0.001
"""Smaller relative errors count as 0."""
LARGEST = 1000.0
"""Larger relative errors count as this."""
WIDTH = log((1 + ACCURACY) / (1 - ACCURACY))
UNIT = 2.0**-20


def step_of(error: float) -> int:
    """Return the step of a relative error: 0 if the error is below `LEAST`, negative if the forecast was too low.

    >>> step_of(0.0), step_of(0.15), step_of(-0.15)
    (0, 252, -252)
    """
    size = min(abs(error), LARGEST)
    if size < LEAST:
        return 0
    step = 1 + max(0, ceil(log(size / LEAST) / WIDTH))
    return step if error > 0 else -step


def _error(step: int) -> float:
    """Return the error that represents a step: within 1 % of both of its ends."""
    if not step:
        return 0.0
    size = LEAST * exp(WIDTH * (abs(step) - 1)) * (1 - ACCURACY)
    return size if step > 0 else -size


def middle(counts: Mapping[int, int]) -> tuple[int, int]:
    """Return the two middle values of a multiset, given by the count of each value; they are equal if its size is odd.

    >>> middle({1: 2, 5: 1, 7: 1})
    (1, 5)

    :raises ValueError: when it is empty
    """
    values = sorted(counts)
    below = list(accumulate(counts[value] for value in values))
    if not below or not below[-1]:
        raise ValueError("an empty multiset has no median")
    lower, upper = (bisect_right(below, place) for place in ((below[-1] - 1) // 2, below[-1] // 2))
    return values[lower], values[upper]


@dataclass(frozen=True, slots=True)
class Tally:
    """Sums over forecasts p and actual values a. Most measures are undefined without forecasts.

    `log_errors` are of log(p50 / actual), `squared_errors` of (p - a) / min(p, a), each at most 10; `close`: within
    15 %; `below`: actual values below p10, `above`: above p90; `widths` of log(p90 / p10); `errors`: number of
    forecasts by the step of their p50's error.
    """

    transfers: int = 0
    log_errors: float = 0.0
    absolute_log_errors: float = 0.0
    squared_errors: float = 0.0
    close: int = 0
    below: int = 0
    above: int = 0
    widths: float = 0.0
    errors: Mapping[int, int] = field(default_factory=dict)

    @classmethod
    def of(cls, rates: Rates, actual: float) -> Self:
        """Return the tally of one forecast; all rates are positive."""
        low, expected, high = rates
        error, off = expected / actual - 1, log(expected) - log(actual)
        relative = min(abs(expected - actual) / min(expected, actual), MOST)
        return cls(
            1,
            _exact(off),
            _exact(abs(off)),
            _exact(relative * relative),
            int(abs(error) <= CLOSE),
            int(actual < low),
            int(actual > high),
            _exact(log(high) - log(low)),
            {step_of(error): 1},
        )

    @classmethod
    def total(cls, tallies: Iterable["Tally"], less: Sequence["Tally"] = ()) -> Self:
        """Return the sum of tallies, minus the tallies in `less`."""
        signed = [*((1, each) for each in tallies), *((-1, each) for each in less)]
        errors: dict[int, int] = {}
        known = errors.get
        for sign, each in signed:
            for step, count in each.errors.items():  # a million iterations for long periods
                errors[step] = known(step, 0) + sign * count
        return cls(
            sum(sign * each.transfers for sign, each in signed),
            sum(sign * each.log_errors for sign, each in signed),
            sum(sign * each.absolute_log_errors for sign, each in signed),
            sum(sign * each.squared_errors for sign, each in signed),
            sum(sign * each.close for sign, each in signed),
            sum(sign * each.below for sign, each in signed),
            sum(sign * each.above for sign, each in signed),
            sum(sign * each.widths for sign, each in signed),
            {step: count for step, count in errors.items() if count} if less else errors,
        )

    @property
    def mdape(self) -> float:
        """Median of |p - a| / a, accurate to 1 %."""
        sizes: dict[int, int] = {}
        for step, count in self.errors.items():
            sizes[abs(step)] = sizes.get(abs(step), 0) + count
        return _median(sizes)

    @property
    def bias(self) -> float:
        """Median of p / a: 1 if as many forecasts are too high as too low."""
        return 1 + _median(self.errors)

    @property
    def rmsre(self) -> float:
        """Root mean square of (p - a) / min(p, a), each at most 10."""
        return sqrt(self.squared_errors / self.transfers)

    @property
    def log_error(self) -> float:
        """Mean of |log(p / a)|."""
        return self.absolute_log_errors / self.transfers

    @property
    def share_close(self) -> float:
        """Share of forecasts within 15 % of the actual value."""
        return self.close / self.transfers

    @property
    def coverage(self) -> float:
        """Share of actual values between p10 and p90, which should be 80 %."""
        return 1 - (self.below + self.above) / self.transfers

    @property
    def sharpness(self) -> float:
        """Geometric mean of p90 / p10."""
        return exp(self.widths / self.transfers)


def _median(steps: Mapping[int, int]) -> float:
    lower, upper = middle(steps)
    return (_error(lower) + _error(upper)) / 2


def _exact(value: float) -> float:
    return round(value / UNIT) * UNIT
