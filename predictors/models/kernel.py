"""What transfers like this one achieved: the mean of those nearest in size, load, kind, time and state.

Source: kernel regression (Nadaraya 1964, Watson 1964), of log rates, since these have heavy tails; its bounds are
quantiles under the same weights. What counts as near is in `VIEWS`. The *state* of a path (`predictors.models.past`)
tells as much as all else together on real logs, since transfers come in bursts (docs/explanation/forecasts.md has the
figures).
"""

from collections.abc import MutableSequence, Sequence
from math import exp, inf, log
from typing import NamedTuple

from predictors.base import Forecaster
from predictors.compiled import compilable, compiled, floats, integers
from predictors.context import LEVELS, Key
from predictors.experience import Experience, telling
from predictors.models.past import BY_SIZE, Features, Past
from predictors.models.state import State
from predictors.observation import Forecast, Observation, Query, Rates

__all__ = ["VIEWS", "Kernel", "Nearness", "Neighbourhood"]

Order = MutableSequence[int]
"""Rows in order of their values."""
ROWS, BORN, END = 3, 1, 2
"""Where the rows begin, and where in a row is which one it was, and when it ended; before these is its value, after
them its features."""


class Nearness(NamedTuple):
    """How much a transfer counts: exp of minus its distance, which is a sum over features.

    Each field is the difference that makes a distance of 1; `age`: in transfers since. Of kinds, equal ones differ by 0
    and others by 1. What is infinite does not matter.
    """

    size: float = inf
    load: float = inf
    kind: float = inf
    rate: float = inf
    level: float = inf
    begun: float = inf
    like_rate: float = inf
    like_begun: float = inf
    age: float = inf


VIEWS = (
    Nearness(size=0.3, load=0.36, kind=1.0, level=1.2, begun=0.48, like_rate=1.2, like_begun=1.2, age=5000.0),
    Nearness(size=0.5, load=0.36, rate=0.6, level=1.2, begun=1.0, age=5000.0),
    Nearness(size=0.6, load=0.7, level=1.2, begun=0.48, like_rate=1.2, like_begun=1.2, age=100.0),
)
"""What is near may be seen so or so: by all that is known, by the state of the path, or lately. Each view is off where
the others are not, so that all together are off by less than any. Fixed for all logs; found on the part of the HPSS
log that is never scored."""
MOST = 8000
"""Transfers that are kept."""

COUNT = len(Features._fields)
FIRST = 3
WIDTH = FIRST + COUNT
FEW = 64
"""Transfers for which there is room at first; it is doubled as they come."""


@compilable
def place(state: State, order: Order, value: float) -> int:
    """The first place in the order whose value is not below this one."""
    low, high = 0, int(state[1])
    while low < high:
        middle = (low + high) // 2
        if state[ROWS + order[middle] * WIDTH] < value:
            low = middle + 1
        else:
            high = middle
    return low


@compilable
def keep(state: State, order: Order, value: float, end: float, features: State) -> None:
    """Take in a transfer; the oldest goes when there is no room.

    State: room, how many are in it, how many ever were, then the rows, one after the other in a ring.
    """
    room, count = int(state[0]), int(state[1])
    row = int(state[2]) % room
    at = ROWS + row * WIDTH
    free = count
    if count == room:
        free = place(state, order, state[at])
        while order[free] != row:
            free += 1
    while free > 0 and state[ROWS + order[free - 1] * WIDTH] > value:
        order[free] = order[free - 1]
        free -= 1
    while free < count - 1 and state[ROWS + order[free + 1] * WIDTH] < value:
        order[free] = order[free + 1]
        free += 1
    order[free] = row
    state[at], state[at + BORN], state[at + END] = value, state[2], end
    for i in range(COUNT):
        state[at + FIRST + i] = features[i]
    state[1], state[2] = min(count + 1.0, float(room)), state[2] + 1.0


@compilable
def weigh(state: State, near: State, features: State, now: float, weights: State) -> float:
    """The weight of each transfer that had ended by now; their sum.

    :param near: one over the differences of `Nearness`
    """
    total, at = 0.0, ROWS
    newest, age = state[2] - 1.0, near[COUNT]
    size, load, kind, rate, level, begun, like_rate, like_begun = features
    by_size, by_load, by_kind, by_rate, by_level, by_begun, by_like_rate, by_like_begun = near[:COUNT]
    for row in range(int(state[1])):
        weight = 0.0
        if state[at + END] <= now:
            distance = (newest - state[at + BORN]) * age
            # One after the other, and not in a loop: that would take plain Python twice as long.
            apart = abs(state[at + FIRST] - size) * by_size
            distance += apart if apart == apart else 0.0
            distance += abs(state[at + FIRST + 1] - load) * by_load
            distance += by_kind if state[at + FIRST + 2] != kind else 0.0
            apart = abs(state[at + FIRST + 3] - rate) * by_rate
            if apart == apart:
                distance += apart
                distance += abs(state[at + FIRST + 4] - level) * by_level
                distance += abs(state[at + FIRST + 5] - begun) * by_begun
                distance += abs(state[at + FIRST + 6] - like_rate) * by_like_rate
                distance += abs(state[at + FIRST + 7] - like_begun) * by_like_begun
            weight = exp(-distance)
        weights[row] = weight
        total += weight
        at += WIDTH
    return total


@compilable
def mix(weights: State, view: State, scale: float, count: int) -> None:
    """Add the weights of another view, times a scale."""
    for row in range(count):
        weights[row] += view[row] * scale


@compilable
def quantile(state: State, order: Order, weights: State, share: float) -> float:
    """The least value at or below which lies the wanted share of the weight.

    :param share: in the unit of the weights
    """
    below, last = 0.0, int(state[1]) - 1
    for i in range(last):
        below += weights[order[i]]
        if below >= share:
            return state[ROWS + order[i] * WIDTH]
    return state[ROWS + order[last] * WIDTH]


@compilable
def mean(state: State, weights: State, total: float) -> float:
    """The weighted mean of the values.

    :param total: of the weights
    """
    found, at = 0.0, ROWS
    for row in range(int(state[1])):
        found += weights[row] * state[at]
        at += WIDTH
    return found / total


class Neighbourhood:
    """Values of transfers, and what those like a new one say of it.

    :param views: what counts as near; where there are several, each counts as much as another
    :param most: transfers that are kept
    :param fast: compiled
    """

    def __init__(self, views: Sequence[Nearness], most: int = MOST, fast: bool = False) -> None:
        self._most, self._fast = most, fast
        self._views = [floats([1 / width for width in near], fast) for near in views]
        self._features = floats([0.0] * COUNT, fast)
        self._grow([0.0, 0.0, 0.0], [])
        self._keep = compiled(keep) if fast else keep
        self._weigh = compiled(weigh) if fast else weigh
        self._mix = compiled(mix) if fast else mix
        self._quantile = compiled(quantile) if fast else quantile
        self._mean = compiled(mean) if fast else mean

    def _grow(self, state: Sequence[float], order: Sequence[int]) -> None:
        """Make room for twice as many as there are."""
        room = min(max(FEW, 2 * len(order)), self._most)
        more = room - len(order)
        self._state = floats([room, *state[1:], *([0.0] * (WIDTH * more))], self._fast)
        self._order = integers([*order, *([0] * more)], self._fast)
        self._weights, self._view = (floats([0.0] * room, self._fast) for _ in range(2))

    def learn(self, value: float, end: float, features: Features) -> None:
        """Take in the value of a transfer, and when it ended."""
        if self._state[1] == len(self._order) < self._most:
            self._grow(self._state, self._order)
        self._ask(features)
        self._keep(self._state, self._order, value, end, self._features)

    def quantiles(self, features: Features, now: float, levels: tuple[float, ...]) -> tuple[float, ...] | None:
        """Values below which those shares of what is like this should lie; None while nothing had ended."""
        total = self._total(features, now)
        return tuple(self._read(level * total) for level in levels) if total > 0.0 else None

    def expected(self, features: Features, now: float) -> tuple[float, float, float] | None:
        """The mean of what is like this, between what lies below a tenth and nine tenths; None as above."""
        total = self._total(features, now)
        if total <= 0.0:
            return None
        low, high = self._read(0.1 * total), self._read(0.9 * total)
        return low, min(max(self._mean(self._state, self._weights, total), low), high), high

    def _read(self, share: float) -> float:
        return self._quantile(self._state, self._order, self._weights, share)

    def _total(self, features: Features, now: float) -> float:
        """Weigh all; the sum of the weights, 0 while nothing had ended."""
        self._ask(features)
        first, *others = self._views
        total = whole = self._weigh(self._state, first, self._features, now, self._weights)
        for near in others:
            part = self._weigh(self._state, near, self._features, now, self._view)
            if part > 0.0:
                self._mix(self._weights, self._view, whole / part, int(self._state[1]))
                total += whole
        return total

    def _ask(self, features: Features) -> None:
        for i, feature in enumerate(features):
            self._features[i] = feature


class Path(Experience):
    """Log rates of one path."""

    def __init__(self, fast: bool) -> None:
        super().__init__()
        self.past = Past()
        self.rates = Neighbourhood(VIEWS, MOST, fast)
        self.size = 0.0
        self.smallest, self.largest = inf, -inf


class Kernel(Forecaster):
    """The mean of the log rates of transfers on the same path that are near in size, load, kind, time and state.

    Its bounds are the weighted quantiles, as they are.

    :param fast: compiled
    """

    name = "kernel"

    def __init__(self, fast: bool = False) -> None:
        self._fast = fast
        self._paths: dict[Key, Path] = {}

    def learn(self, observation: Observation) -> None:
        key = LEVELS["path"](observation)
        if key not in self._paths:
            self._paths[key] = Path(self._fast)
        path = self._paths[key]
        path.setup(observation)
        if rate := telling(observation):
            features = path.past.features(observation, observation.start)
            path.size = features.size
            path.smallest, path.largest = min(path.smallest, path.size), max(path.largest, path.size)
            path.rates.learn(log(rate) - BY_SIZE * path.size, observation.end, features)
            path.past.learn(observation, rate)
            path.rate(observation.end)

    def forecast(self, query: Query) -> Forecast:
        path = self._paths.get(LEVELS["path"](query))
        if path is None or not path.count:
            return (path or Experience()).nothing(self.name)
        features = path.past.features(query, query.at)
        values = path.rates.expected(features, query.at)
        if values is None:
            return path.nothing(self.name)
        size = path.size if features.size != features.size else min(max(features.size, path.smallest), path.largest)
        rates = Rates(*(exp(value + BY_SIZE * size) for value in values))
        said = "the mean of what is near in size, load, kind, time and state"
        return path.forecast(self.name, rates, query, said)
