"""The mean rate of a path, shrunk towards those of its sites, its source and sink, its size class, and all transfers.

Source: empirical Bayes, as in Efron and Morris, "Data analysis using Stein's estimator" (1975): from coarse to fine,
each level's mean of log rates is drawn towards the estimate of the level above it, the more so the fewer transfers it
has. A pair of hosts without transfers is forecast from its hosts' transfers with other hosts.
"""

from collections import OrderedDict
from math import exp, log

from predictors.base import Forecaster
from predictors.context import LEVELS, Key
from predictors.experience import Ago, Experience, telling
from predictors.guarantee import Conformal
from predictors.observation import Forecast, Observation, Query

__all__ = ["Hierarchy"]

CHAIN = ("all", "size", "sink", "source", "sites", "path", "path and size")
PRIOR = 3.0
"""Number of transfers as which the estimate of the level above counts."""
MEMORY = 30.0
"""Number of later transfers that reduce the weight of a value to 1/e."""
MOST_REPORTERS = 15
"""Maximum number of reporters kept per group."""
MOST = 20_000
"""Maximum number of groups kept, about 2 KB each; a path has some 4."""


class Level(Experience):
    """Discounted mean of the log rates of one group; with several reporters, the median of their means."""

    def __init__(self) -> None:
        super().__init__()
        self.ago = Ago(2)
        self.weight = 0.0
        self.mean = 0.0
        self._reporters: dict[str, tuple[float, float]] = {}

    def learn(self, value: float, end: float, reporter: str) -> None:
        if reporter not in self._reporters and len(self._reporters) >= MOST_REPORTERS:
            del self._reporters[next(iter(self._reporters))]
        weight, mean = self._reporters.get(reporter, (0.0, 0.0))
        weight = weight * (1 - 1 / MEMORY) + 1.0
        self._reporters[reporter] = weight, mean + (value - mean) / weight
        estimates = list(self._reporters.values())
        estimates = estimates if len(estimates) % 2 else estimates[:-1]  # an odd number, so that there is a middle one
        self.weight, self.mean = sorted(estimates, key=lambda known: known[1])[len(estimates) // 2]
        self.rate(end)
        self.ago.learn(self.newest, self.weight, self.mean)


class Hierarchy(Forecaster):
    """Means of log rates, shrunk from coarse to fine.

    Each level has bounds of its own, from the errors of its estimates. If only coarse levels have data for a query,
    their bounds show the larger uncertainty.

    :param most: number of groups kept; the least recently updated is dropped first, so that coarse groups stay
    """

    name = "hierarchy"

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._levels: OrderedDict[tuple[str, Key], Level] = OrderedDict()
        self._bounds = {name: Conformal() for name in CHAIN}

    def learn(self, observation: Observation, reporter: str = "") -> None:
        """Learn a transfer.

        :param reporter: reporter of the transfer; the median over reporters limits the influence of each
        """
        groups = [(name, LEVELS[name](observation)) for name in CHAIN]
        levels = [self._level(group) for group in groups]
        for level in levels:
            level.setup(observation)
        rate = telling(observation)
        if rate is None:
            return
        for name, expected in self._estimates(observation, observation.start):
            self._bounds[name].learn(expected, rate)
        for level in levels:
            level.learn(log(rate), observation.end, reporter)

    def _level(self, group: tuple[str, Key]) -> Level:
        """Return the level of a group, and mark it as the last to be dropped; drop the first if there are too many."""
        level = self._levels.setdefault(group, Level())
        self._levels.move_to_end(group)
        if len(self._levels) > self._most:
            self._levels.popitem(last=False)
        return level

    def forecast(self, query: Query) -> Forecast:
        known = [level for name in CHAIN if (level := self._levels.get((name, LEVELS[name](query))))]
        setup = next((level.setup_seconds for level in reversed(known) if level.setup_seconds is not None), None)
        estimates = self._estimates(query, query.at)
        if not estimates:
            return Experience().nothing(self.name)._replace(setup_seconds=setup)
        finest, expected = estimates[-1]
        level = self._levels[finest, LEVELS[finest](query)]
        coarse = "" if finest == CHAIN[-1] else ", as there are no finer data"
        basis = f"the mean by {finest}{coarse}, drawn towards coarser means"
        rates = self._bounds[finest].around(expected)
        return level.forecast(self.name, rates, query, basis)._replace(setup_seconds=setup)

    def _estimates(self, of: Query | Observation, at: float) -> list[tuple[str, float]]:
        """Return the estimated rate of each level that knew something at that time, the finest last."""
        found: list[tuple[str, float]] = []
        estimate = 0.0
        for name in CHAIN:
            level = self._levels.get((name, LEVELS[name](of)))
            if level and (known := level.ago.at(at)):
                weight, mean = known
                prior = PRIOR if found else 0.0
                estimate = (weight * mean + prior * estimate) / (weight + prior)
                found.append((name, exp(estimate)))
        return found
