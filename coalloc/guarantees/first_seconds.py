"""The rate that a reader can have, forecast from the few seconds in which its sources were measured. Pure.

Contracts (`contracts`) rest on what contracts of the same length could have had in the past. Here no such past is
known, and the windows of some seconds say little about the slow ones of the next minutes. So the forecast is the mean
rate, and its error that of the same forecast on public traces.
"""

from collections.abc import Sequence
from math import log
from statistics import fmean, pstdev

from coalloc.guarantees.contracts import SMALLEST, RateForecast
from coalloc.guarantees.error_distribution import ErrorDistribution

__all__ = ["ReadingErrors", "forecast_from_mean", "mean_of_latest"]

ENOUGH, LATEST = 4.0, 10.0
"""Seconds without which nothing is forecast, and the latest ones that count."""
STEADY, VARIED, MOST = 0.3, 0.5, 1.0
"""Spread of a steady path for as many seconds as are known; the part of the deviation of the logarithms of the measured
rates that is added; the greatest deviation that counts."""
GROWTH = 0.25
"""Exponent by which the spread grows with the ratio of the forecast seconds to the known ones."""
LOWEST = 1e-2
"""Least rate of a window, as a part of the mean, as a standstill has no logarithm."""
PRIOR = (
    *(-1.6, -1.2, -1.04, -0.93, -0.84, -0.79, -0.71, -0.67, -0.62, -0.58, -0.55, -0.52, -0.5, -0.48, -0.46),
    *(-0.43, -0.41, -0.4, -0.38, -0.37, -0.35, -0.33, -0.31, -0.3, -0.29, -0.28, -0.26, -0.25, -0.24, -0.23),
    *(-0.22, -0.21, -0.2, -0.19, -0.18, -0.17, -0.16, -0.15, -0.14, -0.13, -0.12, -0.11, -0.1, -0.09, -0.09),
    *(-0.08, -0.07, -0.06, -0.05, -0.04, -0.04, -0.03, -0.02, -0.02, -0.01, 0.0, 0.0, 0.01, 0.02, 0.03),
    *(0.04, 0.05, 0.05, 0.06, 0.07, 0.08, 0.09, 0.1, 0.1, 0.11, 0.13, 0.14, 0.15, 0.16, 0.17),
    *(0.18, 0.19, 0.21, 0.22, 0.23, 0.24, 0.25, 0.27, 0.29, 0.3, 0.32, 0.34, 0.37, 0.39, 0.42),
    *(0.44, 0.47, 0.5, 0.53, 0.58, 0.64, 0.7, 0.77, 0.86, 1.08),
)
"""Quantiles of errors in public traces (Puffer, Oboe, HSDPA; 20 s to 2 min), at 0.005, 0.015, ... 0.995.

tests/benchmarks/reading.py computes them, and shows how often promises hold on traces that they were not made from.
"""


class ReadingErrors(ErrorDistribution):
    """Errors of these forecasts in the past.

    :param prior: errors of equal weight
    """

    def __init__(self, prior: Sequence[float] = PRIOR) -> None:
        super().__init__([(z, 1 / len(prior)) for z in prior])


def mean_of_latest(rates: Sequence[float], window: float) -> float:
    """Return the mean of the latest rates, those of `LATEST` seconds; 0 if there are none."""
    return fmean(rates[-round(LATEST / window) :] or [0.0])


def forecast_from_mean(rates: Sequence[float], window: float, seconds: float) -> RateForecast | None:
    """Return the forecast of the highest rate of arrival at which a reader with a buffer never waits.

    :param rates: rates in windows, samples only, the oldest first
    :param window: seconds of each window
    :param seconds: seconds for which the reader goes on
    :return: None while too little is known
    """
    rates = rates[-round(LATEST / window) :]
    known = len(rates) * window
    if known < ENOUGH:
        return None
    mean = mean_of_latest(rates, window)
    if not mean:
        return RateForecast(0.0, STEADY)
    deviation = min(MOST, pstdev([log(max(LOWEST, rate / mean)) for rate in rates]))
    return RateForecast(mean, (STEADY + VARIED * deviation) * max(SMALLEST, seconds / known) ** GROWTH)
