"""A combination of all forecasters, each weighted by its recent errors; or one of them, if it is closer to most rates.

Source: Herbster and Warmuth, "Tracking the best expert" (1998), for weights that fall exponentially with discounted
losses. The combination is the mean over the middle half of the weight, so that one expert that is off by a factor of
a hundred does not move it. Where rates alternate between levels, a mean lies between the levels and is never close,
although its mean error is small. So among those experts whose mean error is nearly as small as the least, the one
with the smallest median error is used if its median error is smaller than that of the combination. The bounds are
adaptive conformal (`predictors.guarantee`), from the hedge's own errors in similar transfers: they depend on size,
load, kind and state, and are missed as often as intended.
"""

from collections.abc import Sequence
from math import exp, expm1, fsum, log

from predictors.bank import MEMBERS
from predictors.base import Forecaster
from predictors.context import LEVELS, Key
from predictors.experience import Ago, Experience, counted, telling
from predictors.guarantee import AdaptiveLevel
from predictors.models.hierarchy import Hierarchy
from predictors.models.kernel import Kernel
from predictors.models.neighbourhood import Nearness, Neighbourhood
from predictors.models.past import Features, Past
from predictors.observation import Forecast, Observation, Query, Rates, query_of
from predictors.running_median import RunningMedian
from predictors.selection import Selected

__all__ = ["Hedge"]

DISCOUNT = 0.998
"""Factor by which each new loss reduces the weight of earlier ones: about the last 500 count."""
EAGER = 64.0
"""Factor in the exponent of a weight, exp(-EAGER * mean loss); a loss is |log(forecast / actual)|."""
TOLERANCE = 0.03
"""Share by which the mean error of an expert may exceed the least one, if the expert's median error is smaller."""
SLOW_DISCOUNT = 0.9995
"""As DISCOUNT, for the errors by which one expert is chosen: about the last 2,000 count."""
COMPARED = 50
"""Number of errors that an expert needs before it can be chosen alone."""
LARGEST_LOG = 50.0
"""Log errors above this one count as this one, so that their relative errors are finite."""
ENOUGH = 30
"""Number of transfers that a path needs for its own weights and bounds; until then, those of all transfers are used."""
GAIN = 0.02
"""Rate at which bounds follow their misses."""
LOW, HIGH = 0.1, 0.9
ALONE = tuple(member for member in MEMBERS if member.name in ("last", "smoothing 0.40", "AR(5)"))
"""Members of the bank that are experts on their own, besides the selected ones."""


def _experts(fast: bool) -> list[Forecaster]:
    return [
        Selected(level="path", fast=fast),
        Selected(level="path and size", fast=fast),
        *(Selected((member,), fast=fast) for member in ALONE),
        Kernel(fast=fast),
        Hierarchy(),
    ]


ERRORS = Nearness(
    size=1.0, load=1.0, kind=0.5, rate=2.0, level=4.0, begun=2.0, like_rate=4.0, like_begun=4.0, age=300.0, late=100.0
)
"""Nearness used for bounds, with larger distances than for rates, as errors depend less on the features."""
REMEMBERED = 1000
"""Number of errors kept per path."""


class ExpertErrors:
    """The errors by which one expert is compared with the combination: mean log error and median relative error."""

    def __init__(self) -> None:
        self.count = 0
        self._sum = self._weight = 0.0
        self._median = RunningMedian()

    def learn(self, log_error: float) -> None:
        """Count the log of forecast / actual."""
        self.count += 1
        self._sum = SLOW_DISCOUNT * self._sum + abs(log_error)
        self._weight = SLOW_DISCOUNT * self._weight + 1.0
        self._median.add(abs(expm1(min(log_error, LARGEST_LOG))))

    @property
    def mean(self) -> float:
        """Mean of |log(forecast / actual)|."""
        return self._sum / self._weight

    @property
    def median(self) -> float:
        """Median of |forecast - actual| / actual."""
        return self._median.value


class HedgeSeries(Experience):
    """The experts' losses on one path, and the errors of the hedge."""

    def __init__(self, count: int, fast: bool) -> None:
        super().__init__()
        self.losses = [0.0] * count
        self.weights = [0.0] * count
        self.singles = [ExpertErrors() for _ in range(count)]
        self.combined = ExpertErrors()
        self.past = Past()
        self.errors = Neighbourhood(ERRORS, REMEMBERED, fast)
        self.low, self.high = AdaptiveLevel(LOW, GAIN), AdaptiveLevel(HIGH, GAIN)
        self.levels = Ago(2)


class Hedge(Forecaster):
    """The middle of several forecasters, with bounds that correct themselves.

    :param fast: whether to run compiled code
    :ivar experts: the forecasters that it combines
    """

    name = "hedge"

    def __init__(self, fast: bool = False) -> None:
        self.experts = _experts(fast)
        self._fast = fast
        self._series: dict[Key, HedgeSeries] = {}

    def _of(self, key: Key) -> HedgeSeries:
        if key not in self._series:
            self._series[key] = HedgeSeries(len(self.experts), self._fast)
        return self._series[key]

    def learn(self, observation: Observation) -> None:
        path, every = self._of(LEVELS["path"](observation)), self._of(LEVELS["all"](observation))
        path.setup(observation)
        if rate := telling(observation):
            query = query_of(observation)
            forecasts = [expert.forecast(query) for expert in self.experts]
            if any(forecast.rates for forecast in forecasts):
                used = path if path.count >= ENOUGH else every
                combined = _combined(forecasts, used)
                expected, _ = _expected(forecasts, used, combined)
                for series in (path, every):
                    _update_losses(series, forecasts, combined, rate)
                    _correct(series, observation, path.past.features(observation, observation.start), rate / expected)
            path.past.learn(observation, rate)
            path.rate(observation.end)
            every.rate(observation.end)
        for expert in self.experts:
            expert.learn(observation)

    def forecast(self, query: Query) -> Forecast:
        path = self._series.get(LEVELS["path"](query)) or HedgeSeries(len(self.experts), False)
        forecasts = [expert.forecast(query) for expert in self.experts]
        known = [(i, forecast) for i, forecast in enumerate(forecasts) if forecast.rates]
        if not known:
            return path.nothing(self.name)
        series = path if path.count >= ENOUGH else self._series[LEVELS["all"](query)]
        expected, alone = _expected(forecasts, series, _combined(forecasts, series))
        _, first = min(known, key=lambda each: _loss(series, each[0]))
        if alone is not None:
            first = forecasts[alone]
        return Forecast(
            self.name,
            _around(series, query.at, path.past.features(query, query.at), expected),
            path.setup_seconds if path.setup_seconds is not None else first.setup_seconds,
            first.observations,
            first.newest_age,
            _reason(len(known), alone is not None, first),
            first.forecaster,
            first.new,
        )


def _reason(known: int, alone: bool, first: Forecast) -> str:
    if alone:
        return f"the closest of {counted(known, 'forecaster')} so far, {first.forecaster}: {first.reason}"
    among = f"{counted(known, 'forecaster')} by their recent errors"
    return f"{among}, most of all {first.forecaster}: {first.reason}"


def _loss(series: HedgeSeries, expert: int) -> float:
    """Return an expert's discounted mean loss; 1, which is an error by a factor of e, if it has no losses yet."""
    seen = series.weights[expert]
    return series.losses[expert] / seen if seen else 1.0


def _expected(forecasts: Sequence[Forecast], series: HedgeSeries, combined: float) -> tuple[float, int | None]:
    """Return the expected rate, and the index of the expert that it is from; None for the combination."""
    ready = [
        (i, forecast.rates.p50, series.singles[i])
        for i, forecast in enumerate(forecasts)
        if forecast.rates and series.singles[i].count >= COMPARED
    ]
    if not ready:
        return combined, None
    limit = (1 + TOLERANCE) * min(errors.mean for _, _, errors in ready)
    close = [each for each in ready if each[2].mean <= limit]
    best, rate, errors = min(close, key=lambda each: each[2].median)
    return (rate, best) if errors.median < series.combined.median else (combined, None)


def _combined(forecasts: Sequence[Forecast], series: HedgeSeries) -> float:
    """Return the geometric mean of the experts' rates over the middle half of their weight."""
    known = sorted(
        (log(forecast.rates.p50), _loss(series, i)) for i, forecast in enumerate(forecasts) if forecast.rates
    )
    least = min(loss for _, loss in known)
    weighed = [(value, exp(EAGER * (least - loss))) for value, loss in known]
    whole = fsum(weight for _, weight in weighed)
    below = total = inside = 0.0
    for value, weight in weighed:
        part = max(0.0, min(below + weight, 0.75 * whole) - max(below, 0.25 * whole))
        total, inside, below = total + part * value, inside + part, below + weight
    return exp(total / inside)


def _update_losses(series: HedgeSeries, forecasts: Sequence[Forecast], combined: float, rate: float) -> None:
    series.combined.learn(log(combined / rate))
    for i, forecast in enumerate(forecasts):
        if forecast.rates:
            error = log(forecast.rates.p50 / rate)
            series.losses[i] = DISCOUNT * series.losses[i] + abs(error)
            series.weights[i] = DISCOUNT * series.weights[i] + 1.0
            series.singles[i].learn(error)


def _correct(series: HedgeSeries, observation: Observation, features: Features, ratio: float) -> None:
    levels = series.levels.at(observation.start) or (LOW, HIGH)
    if bounds := series.errors.quantiles(features, observation.start, levels):
        series.low.learn(log(ratio) < bounds[0])
        series.high.learn(log(ratio) < bounds[1])
    series.errors.learn(log(ratio), observation.end, features)
    series.levels.learn(series.at(observation.end), series.low.level, series.high.level)


def _around(series: HedgeSeries, at: float, features: Features, expected: float) -> Rates:
    bounds = series.errors.quantiles(features, at, (series.low.level, series.high.level))
    low, high = bounds or (0.0, 0.0)
    return Rates(expected * exp(min(low, 0.0)), expected, expected * exp(max(high, 0.0)))
