"""What transfers like this one achieved: weighted quantiles over those nearest in size, load, kind, time and state.

Source: kernel regression (Nadaraya 1964, Watson 1964) with conditional quantiles in place of the mean, since rates have
heavy tails. What counts as near is in `Nearness`. The *state* of a path is what its newest transfer achieved, how large
that was, and how long ago it ended: on real logs it tells as much as all else together, since transfers come in bursts
(docs/explanation/forecasts.md has the figures).
"""

from bisect import bisect_right, insort
from math import exp, inf, log, log1p
from typing import NamedTuple
from zlib import crc32

from predictors.base import Forecaster
from predictors.compiled import compilable, compiled, floats
from predictors.context import LEVELS, Key
from predictors.experience import RECENT, Experience, telling
from predictors.models.state import State
from predictors.observation import Forecast, Observation, Query, Rates

__all__ = ["Features", "Kernel", "Nearness", "Neighbourhood", "Past"]

ROWS, BORN, END = 3, 1, 2
"""Where the rows begin, and where in a row is which one it was, and when it ended; before these is its value, after
them its features."""
NAN = float("nan")
BY_SIZE = 0.5
"""Rates are compared as if they grew with this power of the size: 1 would compare elapsed times, 0 the rates.

They do not grow beyond the sizes that were seen: a path that is full already carries no more of a larger file.
"""
Features = tuple[float, float, float, float, float, float]
"""log size, log(1 + concurrency), a number for the kind, and of the newest transfer before: log rate, log size, and the
log of the seconds since it ended. NaN where not known: then all are equally near in it."""


class Nearness(NamedTuple):
    """How much a transfer counts: exp of minus its distance, which is a sum over features.

    Each field is the difference that makes a distance of 1; `kind`: the distance of another kind; `age`: in transfers
    since. `most` transfers are kept. Fixed for all logs; found on the part of the HPSS log that is never scored.
    """

    size: float = 0.3
    load: float = 0.4
    kind: float = 2.0
    lag_rate: float = 0.7
    lag_size: float = 3.0
    lag_age: float = 1.0
    age: float = 1000.0
    most: int = 2000


NEAR = Nearness()

COUNT = 6
"""Features."""
FIRST = 3
WIDTH = FIRST + COUNT
KIND = 2


@compilable
def keep(state: State, value: float, end: float, features: State) -> None:
    """Take in a transfer, in order of its value; the oldest goes when there is no room.

    State: room, how many are in it, how many ever were, then the rows.
    """
    room, others, born = int(state[0]), int(state[1]), state[2]
    free = others
    if others == room:
        free, others = 0, others - 1
        while state[ROWS + free * WIDTH + BORN] != born - room:
            free += 1
    while free > 0 and state[ROWS + (free - 1) * WIDTH] > value:
        for column in range(WIDTH):
            state[ROWS + free * WIDTH + column] = state[ROWS + (free - 1) * WIDTH + column]
        free -= 1
    while free < others and state[ROWS + (free + 1) * WIDTH] < value:
        for column in range(WIDTH):
            state[ROWS + free * WIDTH + column] = state[ROWS + (free + 1) * WIDTH + column]
        free += 1
    at = ROWS + free * WIDTH
    state[at], state[at + BORN], state[at + END] = value, born, end
    for i in range(COUNT):
        state[at + FIRST + i] = features[i]
    state[1], state[2] = others + 1.0, born + 1.0


@compilable
def weigh(state: State, near: State, features: State, now: float, weights: State) -> float:
    """The weight of each transfer that had ended by now; their sum.

    :param near: one over the differences of `Nearness`, but for the kind its distance; then one over the age
    """
    total, at = 0.0, ROWS
    newest, age = state[2] - 1.0, near[COUNT]
    size, load, kind, lag_rate, lag_size, lag_age = features
    by_size, by_load, by_kind, by_lag_rate, by_lag_size, by_lag_age = near[:COUNT]
    for row in range(int(state[1])):
        weight = 0.0
        if state[at + END] <= now:
            distance = (newest - state[at + BORN]) * age
            # One after the other, and not in a loop: that would take plain Python twice as long.
            apart = abs(state[at + FIRST] - size) * by_size
            distance += apart if apart == apart else 0.0
            distance += abs(state[at + FIRST + 1] - load) * by_load
            distance += by_kind if state[at + FIRST + 2] != kind else 0.0
            apart = abs(state[at + FIRST + 3] - lag_rate) * by_lag_rate
            if apart == apart:
                distance += apart
                distance += abs(state[at + FIRST + 4] - lag_size) * by_lag_size
                distance += abs(state[at + FIRST + 5] - lag_age) * by_lag_age
            weight = exp(-distance)
        weights[row] = weight
        total += weight
        at += WIDTH
    return total


@compilable
def quantile(state: State, weights: State, share: float) -> float:
    """The least value at or below which lies the wanted share of the weight.

    :param share: in the unit of the weights
    """
    below, last = 0.0, int(state[1]) - 1
    for row in range(last):
        below += weights[row]
        if below >= share:
            return state[ROWS + row * WIDTH]
    return state[ROWS + last * WIDTH]


class Neighbourhood:
    """Values of transfers, and what those like a new one say of it.

    :param near: what counts as near
    :param fast: compiled
    """

    def __init__(self, near: Nearness = NEAR, fast: bool = False) -> None:
        scales = [1 / width for width in near[:COUNT]]
        scales[KIND] = near.kind
        self._near = floats([*scales, 1 / near.age], fast)
        self._state = floats([float(near.most), 0.0, 0.0, *([0.0] * (WIDTH * near.most))], fast)
        self._weights = floats([0.0] * near.most, fast)
        self._features = floats([0.0] * COUNT, fast)
        self._keep = compiled(keep) if fast else keep
        self._weigh = compiled(weigh) if fast else weigh
        self._quantile = compiled(quantile) if fast else quantile

    def learn(self, value: float, end: float, features: Features) -> None:
        """Take in the value of a transfer, and when it ended."""
        for i, feature in enumerate(features):
            self._features[i] = feature
        self._keep(self._state, value, end, self._features)

    def quantiles(self, features: Features, now: float, levels: tuple[float, ...]) -> tuple[float, ...] | None:
        """Values below which those shares of what is like this should lie; None while nothing had ended."""
        for i, feature in enumerate(features):
            self._features[i] = feature
        total = self._weigh(self._state, self._near, self._features, now, self._weights)
        if total <= 0.0:
            return None
        return tuple(self._quantile(self._state, self._weights, level * total) for level in levels)


class Past:
    """The transfers of one path that ended of late: what state it was in when another began."""

    def __init__(self) -> None:
        self._ended: list[tuple[float, float, float]] = []

    def learn(self, end: float, rate: float, size: int) -> None:
        """Take in a transfer; those that come late are sorted in."""
        insort(self._ended, (end, log(rate), log(size)))
        if len(self._ended) > RECENT:
            del self._ended[0]

    def features(self, of: Query | Observation, at: float) -> Features:
        """What is known of a transfer that began, or begins, at a moment."""
        before = bisect_right(self._ended, (at, float("inf"), 0.0))
        lag = (NAN, NAN, NAN)
        if before:
            end, rate, size = self._ended[before - 1]
            lag = (rate, size, log1p(at - end))
        size = log(of.bytes) if of.bytes else NAN
        return (size, log1p(of.concurrency), float(crc32(of.file_class.encode())), *lag)


class Path(Experience):
    """Log rates of one path."""

    def __init__(self, near: Nearness, fast: bool) -> None:
        super().__init__()
        self.past = Past()
        self.rates = Neighbourhood(near, fast)
        self.size = 0.0
        self.smallest, self.largest = inf, -inf


class Kernel(Forecaster):
    """The weighted median of the rates of transfers on the same path that are near in size, load, kind, time and state.

    Its bounds are the weighted quantiles, as they are.

    :param near: what counts as near
    :param name: of this one
    :param fast: compiled
    """

    def __init__(self, near: Nearness = NEAR, name: str = "kernel", fast: bool = False) -> None:
        self.name = name
        self._near, self._fast = near, fast
        self._paths: dict[Key, Path] = {}

    def learn(self, observation: Observation) -> None:
        key = LEVELS["path"](observation)
        if key not in self._paths:
            self._paths[key] = Path(self._near, self._fast)
        path = self._paths[key]
        path.setup(observation)
        if rate := telling(observation):
            features = path.past.features(observation, observation.start)
            path.size = features[0]
            path.smallest, path.largest = min(path.smallest, path.size), max(path.largest, path.size)
            path.rates.learn(log(rate) - BY_SIZE * path.size, observation.end, features)
            path.past.learn(observation.end, rate, observation.bytes)
            path.rate(observation.end)

    def forecast(self, query: Query) -> Forecast:
        path = self._paths.get(LEVELS["path"](query))
        if path is None or not path.count:
            return (path or Experience()).nothing(self.name)
        features = path.past.features(query, query.at)
        values = path.rates.quantiles(features, query.at, (0.1, 0.5, 0.9))
        if values is None:
            return path.nothing(self.name)
        size = path.size if features[0] != features[0] else min(max(features[0], path.smallest), path.largest)
        rates = Rates(*(exp(value + BY_SIZE * size) for value in values))
        said = "the weighted median of what is near in size, load, kind, time and state"
        return path.forecast(self.name, rates, query, said)
