"""A kernel forecast: the mean of earlier transfers, weighted by nearness in size, load, kind, time and state.

Source: kernel regression (Nadaraya 1964, Watson 1964; `predictors.models.neighbourhood`) of log rates, since rates have
heavy tails. On real logs the *state* of a path (`predictors.models.past`) reveals as much as all other features
together, since transfers come in bursts (docs/explanation/forecasts.md has the figures).
"""

from math import exp, inf, log

from predictors.base import Forecaster
from predictors.context import LEVELS, Key, size_class
from predictors.experience import Experience, telling
from predictors.models.neighbourhood import Nearness, Neighbourhood
from predictors.models.past import BY_SIZE, Features, Past
from predictors.observation import Forecast, Observation, Query, Rates

__all__ = ["NEAR", "Kernel"]

NEAR = Nearness(
    size=0.3,
    load=0.36,
    kind=1.0,
    rate=0.6,
    level=1.2,
    begun=0.48,
    like_rate=1.2,
    like_begun=1.2,
    age=5000.0,
    late=100.0,
)
"""Distances for all logs; fitted to the part of the HPSS log that is never scored."""
MOST = 2000
"""Transfers kept per size class."""
BESIDE = 1
"""Number of size classes on either side of its own in which a transfer still counts."""
ANY = -1 - BESIDE
"""Key of the class of all sizes, used when the size is unknown."""


class PathKernel(Experience):
    """The log rates of one path."""

    def __init__(self, fast: bool) -> None:
        super().__init__()
        self.past = Past()
        self.size = 0.0
        self.smallest, self.largest = inf, -inf
        self._fast = fast
        self._near: dict[int, Neighbourhood] = {}

    def learn(self, among: int, value: float, end: float, features: Features) -> None:
        """Learn the log rate of a transfer of one size class; neighbouring classes learn it, too."""
        for each in (ANY, *range(among - BESIDE, among + BESIDE + 1)):
            if each not in self._near:
                self._near[each] = Neighbourhood(NEAR, MOST, self._fast)
            self._near[each].learn(value, end, features)

    def near(self, nbytes: int | None) -> Neighbourhood:
        """Return the transfers of this size class, or of the nearest class that has any."""
        among = ANY if nbytes is None else size_class(nbytes)
        return self._near[min(self._near, key=lambda each: abs(each - among))]


class Kernel(Forecaster):
    """The mean of the log rates of transfers on the same path that are near in size, load, kind, time and state.

    Its bounds are the weighted quantiles, without corrections.

    :param fast: whether to run compiled code
    """

    name = "kernel"

    def __init__(self, fast: bool = False) -> None:
        self._fast = fast
        self._paths: dict[Key, PathKernel] = {}

    def learn(self, observation: Observation) -> None:
        key = LEVELS["path"](observation)
        if key not in self._paths:
            self._paths[key] = PathKernel(self._fast)
        path = self._paths[key]
        path.setup(observation)
        if rate := telling(observation):
            features = path.past.features(observation, observation.start)
            path.size = features.size
            path.smallest, path.largest = min(path.smallest, path.size), max(path.largest, path.size)
            path.learn(size_class(observation.bytes), log(rate) - BY_SIZE * path.size, observation.end, features)
            path.past.learn(observation, rate)
            path.rate(observation.end)

    def forecast(self, query: Query) -> Forecast:
        path = self._paths.get(LEVELS["path"](query))
        if path is None or not path.count:
            return (path or Experience()).nothing(self.name)
        features = path.past.features(query, query.at)
        values = path.near(query.bytes).expected(features, query.at)
        if values is None:
            return path.nothing(self.name)
        size = path.size if features.size != features.size else min(max(features.size, path.smallest), path.largest)
        rates = Rates(*(exp(value + BY_SIZE * size) for value in values))
        basis = "the mean of transfers similar in size, load, kind, time and state"
        return path.forecast(self.name, rates, query, basis)
