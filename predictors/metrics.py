"""Quality measures of forecasts. Pure sums over pairs of forecast and actual rate, all positive.

A mean of relative errors is not included: one transfer that took a hundred times as long as it should would outweigh
a hundred good forecasts (on real logs it exceeds 2000 %).
"""

from collections.abc import Sequence
from math import exp, fsum, log, sqrt
from statistics import median
from typing import NamedTuple

__all__ = ["Bounds", "Scores", "bounds", "scores"]

CLOSE = 0.15
"""Relative error up to which a forecast is close."""
MOST = 10.0
"""Largest relative error that counts in RMSRE; larger ones count as this."""
WORST = 500
"""Length of a run of samples; the share of misses in the worst run is reported."""


class Scores(NamedTuple):
    """Measures of point forecasts p for actual values a.

    `mdape`: median of `|p - a| / a`. `rmsre`: root mean square of `(p - a) / min(p, a)`, each at most 10 (He, Dovrolis
    and Ammar, 2005). `log_error`: mean of `|log(p / a)|`. `close`: share within 15 %. `bias`: median of `p / a`, 1 when
    as many are too high as too low.
    """

    pairs: int
    mdape: float
    rmsre: float
    log_error: float
    close: float
    bias: float


class Bounds(NamedTuple):
    """Measures of lower bounds that should be missed by a given share.

    `missed`: share of actual values below their bound. `worst`: that share in the worst 500 samples in a row.
    `sharpness`: median of bound / actual; the nearer to 1, the more useful the bound.
    """

    pairs: int
    missed: float
    worst: float
    sharpness: float


def scores(forecasts: Sequence[float], actuals: Sequence[float]) -> Scores:
    """Judge point forecasts.

    >>> scores([10.0, 20.0, 30.0], [10.0, 10.0, 40.0]).mdape
    0.25

    :raises ValueError: without any pair
    """
    pairs = _paired(forecasts, actuals)
    errors = [abs(p - a) / a for p, a in pairs]
    relative = [min(abs(p - a) / min(p, a), MOST) for p, a in pairs]
    return Scores(
        len(pairs),
        median(errors),
        sqrt(fsum(error * error for error in relative) / len(pairs)),
        fsum(abs(log(p / a)) for p, a in pairs) / len(pairs),
        sum(error <= CLOSE for error in errors) / len(pairs),
        exp(median(log(p / a) for p, a in pairs)),
    )


def bounds(lower: Sequence[float], actuals: Sequence[float]) -> Bounds:
    """Judge lower bounds.

    >>> bounds([1.0, 5.0], [2.0, 4.0])
    Bounds(pairs=2, missed=0.5, worst=0.5, sharpness=0.875)

    :raises ValueError: without any pair
    """
    pairs = _paired(lower, actuals)
    misses = [a < p for p, a in pairs]
    length = min(WORST, len(misses))
    inside = worst = sum(misses[:length])
    for gone, come in zip(misses, misses[length:], strict=False):
        inside += come - gone
        worst = max(worst, inside)
    return Bounds(len(pairs), sum(misses) / len(pairs), worst / length, median(p / a for p, a in pairs))


def _paired(forecasts: Sequence[float], actuals: Sequence[float]) -> list[tuple[float, float]]:
    if pairs := list(zip(forecasts, actuals, strict=True)):
        return pairs
    raise ValueError("there is no pair of a forecast and an actual rate")
