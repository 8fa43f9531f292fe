"""The mean rate of a link, shrunk towards those of its sites, its source and sink, its distance, size, and all links.

Source: empirical Bayes, as in Efron and Morris, "Data analysis using Stein's estimator" (1975): from coarse to fine,
each level is drawn towards the estimate of the level above it, the more so the fewer data it has. Coarse levels learn
what others leave unexplained (as in backfitting), so that the effects of size, distance, source and sink add up.
"""

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from math import exp, fsum, log

from predictors.base import Forecaster
from predictors.context import LEVELS, Key
from predictors.experience import Ago, Experience, telling
from predictors.guarantee import Conformal
from predictors.models.link_means import (
    LeftOutErrors,
    LinkMeans,
    NamedLink,
    SizedExperience,
    discounted,
    middle,
)
from predictors.models.past import BY_SIZE
from predictors.observation import Direction, Forecast, New, Observation, Query, Rates

__all__ = ["Distance", "Hierarchy"]

Distance = Callable[[str, str], float | None]
"""Function that returns the kilometres from a source to a sink, None if unknown."""

COARSE: Mapping[str, Sequence[str]] = {
    "all": (),
    "size": ("all",),
    "distance": ("all", "size"),
    "sink": ("all", "size", "distance", "source"),
    "source": ("all", "size", "distance", "sink"),
    "sites": ("all", "size", "distance", "sink", "source"),
}
"""Coarse levels, and those whose effects are removed from what each learns."""
FINE = ("path", "path and size")
NEAR_TO_FAR = (500.0, 2000.0, 5000.0, 9000.0)
"""Upper limits of the classes of distances, in km."""
PRIORS = {"all": 0.0, "size": 1.0, "distance": 1.0, "sink": 0.5, "source": 0.5, "sites": 0.5}
"""Number of links as which the assumption of no effect counts."""
PATH_PRIOR = 3.0
"""Number of transfers as which the estimate above counts, for a link of its own."""
MOST_REPORTERS = 15
"""Maximum number of reporters kept per link."""
MOST = 20_000
"""Maximum number of groups kept, about 2 KB each; a path has some 4."""


NOT_USED: Mapping[New, str] = {
    "link": "nothing was sent over this link yet",
    "source": "this source was not used yet",
    "sink": "this sink was not used yet",
    "source and sink": "neither this source nor this sink was used yet",
}
"""What a forecast is for that rests on other links only."""


class LinkLevel(SizedExperience):
    """Discounted mean of the values of one link; with several reporters, the median of their means."""

    def __init__(self) -> None:
        super().__init__()
        self.ago = Ago(2)
        self._reporters: dict[str, tuple[float, float]] = {}

    def learn(self, value: float, reporter: str) -> None:
        """Learn the value of a transfer, after it was counted."""
        if reporter not in self._reporters and len(self._reporters) >= MOST_REPORTERS:
            del self._reporters[next(iter(self._reporters))]
        self._reporters[reporter] = discounted(self._reporters.get(reporter, (0.0, 0.0)), value)
        self.ago.learn(self.newest, *middle(list(self._reporters.values())))


class Hierarchy(Forecaster):
    """Means of log rates, shrunk from coarse to fine. All values are log rates of transfers of one size (`BY_SIZE`).

    The bounds for a link with transfers come from the errors in forecasts for such links; those for any other link from
    the errors that were made when the link, its source, its sink or both were left out.

    :param distance: function that returns the distance of two hosts
    :param most: number of groups kept; the least recently updated is dropped first, so that coarse groups stay
    """

    name = "hierarchy"

    def __init__(self, distance: Distance = lambda source, sink: None, most: int = MOST) -> None:
        self._distance = distance
        self._most = most
        self._levels: OrderedDict[tuple[str, Key], LinkMeans | LinkLevel] = OrderedDict()
        self._bounds = {name: Conformal() for name in FINE}
        self._left_out: dict[tuple[New, Direction], LeftOutErrors] = {}

    def learn(self, observation: Observation, reporter: str = "") -> None:
        """Learn a transfer.

        :param reporter: reporter of the transfer; the median over reporters limits the influence of each
        """
        groups = list(self._groups(observation))
        levels = [self._level(group) for group in groups]
        for level in levels:
            level.setup(observation)
        rate = telling(observation)
        if rate is None:
            return
        size, link = log(observation.bytes), (observation.source, observation.sink)
        value = log(rate) - BY_SIZE * size
        self._learn_errors(observation, value)
        effects = self._effects(observation) or {"all": value}
        for (name, _), level in zip(groups, levels, strict=True):
            level.see(size, observation.end)
            if isinstance(level, LinkLevel):
                level.learn(value, reporter)
            else:
                level.learn(link, value - fsum(effects.get(other, 0.0) for other in COARSE[name]), reporter)

    def _learn_errors(self, observation: Observation, value: float) -> None:
        """Learn the errors of forecasts that know this link, and of those from which it is left out."""
        for name, expected in self._estimates(observation, observation.start):
            if name in FINE:
                self._bounds[name].learn(exp(expected), exp(value))
        source, sink = link = (observation.source, observation.sink)
        parts: tuple[tuple[New, str | NamedLink], ...] = (
            ("link", link),
            ("source", source),
            ("sink", sink),
            ("source and sink", link),
        )
        for new, group in parts:
            if effects := self._effects(observation, new):
                errors = self._left_out.setdefault((new, observation.direction), LeftOutErrors())
                errors.learn(group, value - fsum(effects.values()))

    def _groups(self, of: Query | Observation) -> Iterator[tuple[str, Key]]:
        for name in (*COARSE, *FINE):
            if name != "distance":
                yield name, LEVELS[name](of)
            elif (far := self._distance(of.source, of.sink)) is not None:
                yield name, (of.direction, bisect_right(NEAR_TO_FAR, far))

    def _level(self, group: tuple[str, Key]) -> LinkMeans | LinkLevel:
        """Return the level of a group, and mark it as the last to be dropped; drop the first if there are too many."""
        if group not in self._levels:
            self._levels[group] = LinkLevel() if group[0] in FINE else LinkMeans()
        level = self._levels[group]
        self._levels.move_to_end(group)
        if len(self._levels) > self._most:
            self._levels.popitem(last=False)
        return level

    def forecast(self, query: Query) -> Forecast:
        known = {group[0]: level for group in self._groups(query) if (level := self._levels.get(group))}
        setup = next(
            (level.setup_seconds for level in reversed(known.values()) if level.setup_seconds is not None), None
        )
        estimates = self._estimates(query, query.at)
        if not estimates:
            return Experience().nothing(self.name)._replace(setup_seconds=setup)
        finest, value = estimates[-1]
        level = known[finest]
        expected = exp(value + BY_SIZE * level.size(query.bytes))
        if finest in FINE:
            coarse = "" if finest == FINE[-1] else ", as there are no finer data"
            basis = f"the mean by {finest}{coarse}, drawn towards coarser means"
            found = level.forecast(self.name, self._bounds[finest].around(expected), query, basis)
        else:
            found = self._guess(level, finest, expected, query)
        return found._replace(setup_seconds=setup)

    def _guess(self, level: SizedExperience, finest: str, expected: float, query: Query) -> Forecast:
        """Return a forecast for a link without transfers."""
        new = self._new(query)
        errors = self._left_out.get((new, query.direction)) or LeftOutErrors()
        low, high = errors.bounds()
        rates = Rates(expected * exp(low), expected, expected * exp(high))
        found = level.forecast(self.name, rates, query, f"a guess, as {NOT_USED[new]}: the mean by {finest}")
        shown = f"{len(errors)} such guesses show" if len(errors) > 1 else "no such guess shows"
        return found._replace(reason=f"{found.reason}; {shown} how far off it may be", new=new)

    def _new(self, query: Query) -> New:
        """Return which of source and sink have no transfers yet; "link" if both have some, but not with each other."""
        used = [
            bool((level := self._levels.get((name, LEVELS[name](query)))) and level.count)
            for name in ("source", "sink")
        ]
        match used:
            case [True, True]:
                return "link"
            case [True, False]:
                return "sink"
            case [False, True]:
                return "source"
        return "source and sink"

    def _estimates(self, of: Query | Observation, at: float) -> list[tuple[str, float]]:
        """Return the estimates of the finest coarse level and of finer ones that had data at that time, finest last."""
        effects = self._effects(of)
        found = [(name, fsum(effects.values())) for name in list(effects)[-1:]]
        for name in FINE:
            level = self._levels.get((name, LEVELS[name](of)))
            if found and isinstance(level, LinkLevel) and (known := level.ago.at(at)):
                weight, mean = known
                found.append((name, (weight * mean + PATH_PRIOR * found[-1][1]) / (weight + PATH_PRIOR)))
        return found

    def _effects(self, of: Query | Observation, without: New = "") -> dict[str, float]:
        """Return the effect of each coarse level that has data; their sum is the estimate.

        Each but the first is shrunk towards 0. Without data for the first, there are none.

        :param without: what is left out: this link, its source, its sink, or both
        """
        found: dict[str, float] = {}
        link = (of.source, of.sink)
        for name, key in self._groups(of):
            level = self._levels.get((name, key))
            if isinstance(level, LinkMeans) and (known := level.mean(without, link)) and (found or name == "all"):
                weight, mean = known
                found[name] = mean * weight / (weight + PRIORS[name])
        return found
