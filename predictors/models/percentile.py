"""IQ-Paths' percentile prediction: quantiles of the newest N rates of a path. The baseline for bounds.

Source: Cai, Kumar and Schwan, "IQ-Paths: self-regulating data streams across network overlays" (2006), section 6.1:
"the bandwidth will be at least X with a probability of 90 %", X the 10th percentile of the last N = 500..1000 samples.
"""

from predictors.base import Forecaster
from predictors.context import LEVELS, Key
from predictors.experience import Experience, telling
from predictors.guarantee import Percentile
from predictors.observation import Forecast, Observation, Query, Rates

__all__ = ["PercentilePrediction"]


class PathRates(Experience):
    """The newest rates of one path."""

    def __init__(self) -> None:
        super().__init__()
        self.rates = Percentile()


class PercentilePrediction(Forecaster):
    """The 10th, 50th and 90th percentile of the newest 500 rates of a path."""

    name = "percentile"

    def __init__(self) -> None:
        self._paths: dict[Key, PathRates] = {}

    def learn(self, observation: Observation) -> None:
        path = self._paths.setdefault(LEVELS["path"](observation), PathRates())
        path.setup(observation)
        if rate := telling(observation):
            path.rates.learn(rate)
            path.rate(observation.end)

    def forecast(self, query: Query) -> Forecast:
        path = self._paths.get(LEVELS["path"](query), PathRates())
        rates = [path.rates.at(level) for level in (0.1, 0.5, 0.9)]
        low, middle, high = rates
        if low is None or middle is None or high is None:
            return path.nothing(self.name)
        return path.forecast(self.name, Rates(low, middle, high), query, "the median of the newest 500")
