"""A combination of all forecasters, each weighted by its recent errors.

Source: Herbster and Warmuth, "Tracking the best expert" (1998), for weights that fall exponentially with discounted
losses. The forecast is the mean over the middle half of the weight, so that one expert that is off by a factor of a
hundred does not move it. The bounds are adaptive conformal (`predictors.guarantee`), from the hedge's own errors in
similar transfers: they depend on size, load, kind and state, and are missed as often as intended.
"""

from collections.abc import Sequence
from math import exp, fsum, log

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
from predictors.selection import Selected

__all__ = ["Hedge"]

DISCOUNT = 0.998
"""Factor by which each new loss reduces the weight of earlier ones: about the last 500 count."""
EAGER = 64.0
"""Factor in the exponent of a weight, exp(-EAGER * mean loss); a loss is |log(forecast / actual)|."""
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


class HedgeSeries(Experience):
    """The experts' losses on one path, and the errors of the hedge."""

    def __init__(self, count: int, fast: bool) -> None:
        super().__init__()
        self.losses = [0.0] * count
        self.weights = [0.0] * count
        self.past = Past()
        self.errors = Neighbourhood(ERRORS, REMEMBERED, fast)
        self.low, self.high = AdaptiveLevel(LOW, GAIN), AdaptiveLevel(HIGH, GAIN)
        self.levels = Ago(2)


class Hedge(Forecaster):
    """The middle of several forecasters, with bounds that correct themselves.

    :param fast: whether to run compiled code
    """

    name = "hedge"

    def __init__(self, fast: bool = False) -> None:
        self._among = _experts(fast)
        self._fast = fast
        self._series: dict[Key, HedgeSeries] = {}

    def _of(self, key: Key) -> HedgeSeries:
        if key not in self._series:
            self._series[key] = HedgeSeries(len(self._among), self._fast)
        return self._series[key]

    def learn(self, observation: Observation) -> None:
        path, every = self._of(LEVELS["path"](observation)), self._of(LEVELS["all"](observation))
        path.setup(observation)
        if rate := telling(observation):
            query = query_of(observation)
            forecasts = [expert.forecast(query) for expert in self._among]
            if any(forecast.rates for forecast in forecasts):
                expected = _hedged(forecasts, path if path.count >= ENOUGH else every)
                for series in (path, every):
                    _update_losses(series, forecasts, rate)
                    _correct(series, observation, path.past.features(observation, observation.start), rate / expected)
            path.past.learn(observation, rate)
            path.rate(observation.end)
            every.rate(observation.end)
        for expert in self._among:
            expert.learn(observation)

    def forecast(self, query: Query) -> Forecast:
        path = self._series.get(LEVELS["path"](query)) or HedgeSeries(len(self._among), False)
        forecasts = [expert.forecast(query) for expert in self._among]
        known = [(i, forecast) for i, forecast in enumerate(forecasts) if forecast.rates]
        if not known:
            return path.nothing(self.name)
        series = path if path.count >= ENOUGH else self._series[LEVELS["all"](query)]
        expected = _hedged(forecasts, series)
        _, first = min(known, key=lambda each: _loss(series, each[0]))
        return Forecast(
            self.name,
            _around(series, query.at, path.past.features(query, query.at), expected),
            path.setup_seconds if path.setup_seconds is not None else first.setup_seconds,
            first.observations,
            first.newest_age,
            f"{counted(len(known), 'forecaster')} by their recent errors, most of all "
            f"{first.forecaster}: {first.reason}",
            first.forecaster,
        )


def _loss(series: HedgeSeries, expert: int) -> float:
    """Return an expert's discounted mean loss; 1, which is an error by a factor of e, if it has no losses yet."""
    seen = series.weights[expert]
    return series.losses[expert] / seen if seen else 1.0


def _hedged(forecasts: Sequence[Forecast], series: HedgeSeries) -> float:
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


def _update_losses(series: HedgeSeries, forecasts: Sequence[Forecast], rate: float) -> None:
    for i, forecast in enumerate(forecasts):
        if forecast.rates:
            series.losses[i] = DISCOUNT * series.losses[i] + abs(log(forecast.rates.p50 / rate))
            series.weights[i] = DISCOUNT * series.weights[i] + 1.0


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
