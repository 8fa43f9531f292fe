"""Contracts: a rate in a share of the windows of some length, for some time. Pure; time is an argument.

Consecutive windows are correlated, so a promise for an hour is not 3,600 promises for a second. Therefore the unit is
the whole contract: what rate a contract of this kind could have had at each time in the past, and how far such
forecasts erred for contracts that have ended (docs/explanation/promises.md).
"""

from collections.abc import Sequence
from math import exp, floor, log, sqrt
from operator import mul
from typing import NamedTuple

from coalloc.guarantees.error_distribution import HALF, ErrorDistribution
from coalloc.guarantees.samples import WindowRate
from coalloc.guarantees.streams import Stream

__all__ = [
    "LEAST",
    "SMALLEST",
    "Contract",
    "ContractErrors",
    "ContractResult",
    "RateForecast",
    "contract_rate",
    "forecast_rate",
    "misses",
]

KNOWN = 240
"""Number of the latest windows from which a rate is forecast."""
LEAST = 8
"""Number of windows without which nothing is promised."""
STEPS = 8
"""Number of times within the length of a contract at which it is asked what one could have had."""
USUAL, RARE, TRUST = 0.7, 0.3, 3.0
"""Spread while nothing is measured: as a part of that of single windows, if one in ten may be missed; the exponent by
which it grows with rarer misses; its weight, as a number of disjoint contracts."""
STEADIEST = 0.05
"""Least spread of that kind, as no path is steadier."""
RECENT = 8
"""Part of the known windows that show how the rate is now: one in so many."""
LOWEST, SMALLEST = 1e-2, 1e-4
"""Least rate of a window and of a contract, as a part of the mean, as a standstill has no logarithm."""
MARGIN = 0.9
"""Part of the accepted risk that is taken, as the errors are those of few contracts."""
ROUNDING = 1e-6
"""Part of the rate by which that of a window may be less, as sums of bytes are divided at the ends of windows."""
OWN = 200
"""Number of the latest own errors that count."""
PRIOR = (
    *(-4.01, -3.33, -2.63, -2.34, -2.08, -1.9, -1.68, -1.53, -1.41, -1.32, -1.24, -1.19, -1.1, -1.04, -0.98),
    *(-0.92, -0.88, -0.83, -0.8, -0.77, -0.72, -0.69, -0.65, -0.62, -0.6, -0.57, -0.53, -0.5, -0.48, -0.45),
    *(-0.42, -0.4, -0.37, -0.34, -0.32, -0.3, -0.27, -0.25, -0.22, -0.2, -0.18, -0.15, -0.13, -0.11, -0.09),
    *(-0.07, -0.05, -0.04, -0.02, 0.0, 0.01, 0.03, 0.05, 0.08, 0.1, 0.11, 0.14, 0.16, 0.18, 0.2),
    *(0.22, 0.24, 0.26, 0.28, 0.3, 0.32, 0.34, 0.36, 0.39, 0.41, 0.43, 0.46, 0.48, 0.5, 0.53),
    *(0.56, 0.58, 0.61, 0.64, 0.67, 0.7, 0.73, 0.77, 0.8, 0.84, 0.87, 0.91, 0.95, 0.98, 1.03),
    *(1.07, 1.12, 1.17, 1.24, 1.31, 1.39, 1.53, 1.69, 2.02, 2.53),
)
"""Quantiles of errors in public traces (Puffer, Oboe, HSDPA; contracts of 1 to 10 min), at 0.005, 0.015, ... 0.995.

tests/benchmarks/admission.py computes them, and shows how often promises hold on traces that they were not made from.
"""


def misses(probability: float, windows: int) -> int:
    """Return how many of so many windows may be missed, never all of them."""
    return max(0, min(windows - 1, floor((1 - probability) * windows + 1e-9)))


def contract_rate(rates: Sequence[float], probability: float) -> float:
    """Return the highest rate that a contract over these windows could have had."""
    return sorted(rates)[misses(probability, len(rates))]


class ContractErrors(ErrorDistribution):
    """Errors of forecasts for contracts that have ended, for one class of paths.

    A contract that got what it asked for shows only that its error was *at least* so much. Its weight is spread over
    the greater errors that are known.

    :param own: own errors, the latest last, and whether they are only known to be at least so much
    """

    def __init__(self, own: Sequence[tuple[float, bool]] = (), prior: Sequence[float] = PRIOR) -> None:
        self._own, self._prior = list(own)[-OWN:], prior
        weight = len(self._own) / (len(self._own) + HALF)
        exact = [z for z, at_least in self._own if not at_least]
        each = weight / len(self._own) if self._own else 0.0
        known = [*((z, each) for z in exact), *((z, (1 - weight) / len(prior)) for z in prior)]
        super().__init__([*known, *self._spread(known, each)])

    def _spread(self, known: Sequence[tuple[float, float]], each: float) -> list[tuple[float, float]]:
        more = []
        for bound in (z for z, at_least in self._own if at_least):
            greater = [(z, weight) for z, weight in known if z >= bound] or [(bound, 1.0)]
            total = sum(weight for _, weight in greater)
            more += [(z, each * weight / total) for z, weight in greater]
        return more

    def learn(self, result: "ContractResult") -> "ContractErrors":
        """Return the errors with that of one more contract."""
        return ContractErrors([*self._own, (result.error, result.at_least)], self._prior)


class RateForecast(NamedTuple):
    """The forecast of the highest rate that a contract can have.

    :param rate: bytes per second, half of such contracts can have more
    :param spread: unit of the error, as the logarithm of a factor
    """

    rate: float
    spread: float

    def promise(self, confidence: float, errors: ErrorDistribution) -> float:
        """Return the rate that can be promised: it is kept with this probability."""
        return self.rate * exp(self.spread * errors.quantile(MARGIN * (1 - confidence)))

    def chance(self, rate: float, errors: ErrorDistribution) -> float:
        """Return the probability that a contract over this rate is kept."""
        if rate <= 0:
            return 1.0
        return 1 - errors.chance(self.error(rate)) if self.rate else 0.0

    def error(self, actual: float) -> float:
        """Return the error of this forecast if `actual` was the rate to be had; 0 if it forecast no rate."""
        if not self.rate:
            return 0.0
        return log(max(SMALLEST, actual / self.rate)) / self.spread


def forecast_rate(rates: Sequence[float], probability: float, windows: int) -> RateForecast | None:
    """Return the forecast for a contract over so many windows; None while too few are known.

    The forecast is the geometric mean of two. One is that of the rates that contracts could have had in the past,
    weighted exponentially with a memory of one contract. The other is that of the percentile of all known windows and
    of the percentile of the latest ones. The spread is the typical error of forecasts of the first kind, measured on
    that past. If too little of it is known, shorter contracts are looked at; the error grows with the square root of
    the duration, as that of a random walk.

    :param rates: rates in the latest windows of the stream's length, samples only, the oldest first
    :param probability: share of the windows that must have the rate
    """
    rates = rates[-KNOWN:]
    if len(rates) < LEAST:
        return None
    mean = sum(rates) / len(rates)
    smallest = SMALLEST * mean
    if not smallest:
        return RateForecast(0.0, STEADIEST)
    logs = [log(max(LOWEST, rate / mean)) for rate in rates]
    noise = sqrt(max(0.0, sum(map(mul, logs, logs)) / len(logs) - (sum(logs) / len(logs)) ** 2))
    usual = max(STEADIEST, USUAL * noise * (0.1 / max(1 - probability, 1 / KNOWN)) ** RARE)
    length = min(windows, len(rates) // 2)
    past, ahead = _past_contracts(rates, probability, length, smallest)
    expected, spread = _forecast(past, ahead, usual)
    latest = rates[-max(LEAST, len(rates) // RECENT) :]
    percentiles = [log(max(smallest, contract_rate(each, probability))) for each in (rates, latest)]
    widened = spread * sqrt(min(windows, KNOWN // 2) / length)
    return RateForecast(exp(expected / 2 + sum(percentiles) / 4), widened)


def _past_contracts(
    rates: Sequence[float], probability: float, length: int, smallest: float
) -> tuple[list[float], int]:
    """Return the logarithms of the rates that contracts could have had, and after how many of them the next begins."""
    step = max(1, length // STEPS)
    allowed = misses(probability, length)
    ends = range(len(rates) - (len(rates) - length) // step * step, len(rates) + 1, step)
    past = [log(max(smallest, sorted(rates[end - length : end])[allowed])) for end in ends]
    return past, max(1, round(length / step))


def _forecast(past: Sequence[float], ahead: int, usual: float) -> tuple[float, float]:
    """Return the forecast for what comes `ahead` steps after the last of these logarithms of rates, and its spread."""
    decay, total, weight, means = exp(-1 / ahead), 0.0, 0.0, []
    for each in past:
        total, weight = total * decay + each, weight * decay + 1
        means.append(total / weight)
    squares = [(actual - mean) ** 2 for actual, mean in zip(past[ahead:], means, strict=False)]
    disjoint = len(squares) / ahead
    return means[-1], sqrt((sum(squares) / ahead + TRUST * usual**2) / (disjoint + TRUST))


class ContractResult(NamedTuple):
    """The result of a contract that has ended.

    :param kept: whether enough windows had the rate
    :param missed: number of windows that had less
    :param error: error of the forecast
    :param at_least: whether the error may be greater, since the contract got no more than it asked for
    """

    kept: bool
    missed: int
    error: float
    at_least: bool


class Contract(NamedTuple):
    """A promise: the stream gets its rate in a share of the windows, for some time.

    :param since: seconds, by the clock of the path's windows
    :param seconds: duration
    :param forecast: the forecast on which it rests
    """

    stream: Stream
    since: float
    seconds: float
    forecast: RateForecast

    @property
    def until(self) -> float:
        """The time at which it ends."""
        return self.since + self.seconds

    @property
    def windows(self) -> int:
        """Number of its windows."""
        return window_count(self.stream, self.seconds)

    def result(self, windows: Sequence[WindowRate], now: float) -> ContractResult:
        """Return the result, with the error of the forecast.

        :param windows: its windows, all of them
        :raises ValueError: when it has not ended, or the number of windows is not that of the contract
        """
        if now < self.until or len(windows) != self.windows:
            raise ValueError(f"a contract of {self.windows} windows until {self.until} has not ended at {now}")
        wanted = (self.stream.rate or 0.0) * (1 - ROUNDING)
        missed = sum(window.rate < wanted for window in windows)
        allowed = misses(self.stream.probability, self.windows)
        possible = contract_rate([window.rate for window in windows], self.stream.probability)
        certain = sum(window.rate <= possible for window in windows if not window.limited) > allowed
        return ContractResult(missed <= allowed, missed, self.forecast.error(possible), not certain)


def window_count(stream: Stream, seconds: float) -> int:
    """Return the number of windows of a contract, at least one."""
    return max(1, round(seconds / stream.window))
