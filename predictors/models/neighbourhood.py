"""Results of similar transfers: means and quantiles, weighted by nearness.

Source: kernel regression (Nadaraya 1964, Watson 1964). Nearness has three views: by all features, by the state of the
path (`predictors.models.past`), and by recency. Their errors differ, so that all three together have a smaller error
than any one; each has a third of the weight.
"""

from collections.abc import MutableSequence, Sequence
from math import exp, fsum, inf
from typing import NamedTuple

from predictors.compiled import compilable, compiled, floats, integers, zeros
from predictors.models.past import Features
from predictors.models.state import State

__all__ = ["Nearness", "Neighbourhood"]

Order = MutableSequence[int]
"""Row numbers, in the order of the rows' values."""
Columns = tuple[State, ...]
"""Columns with one row per transfer: its value, number, end and features; or its weight in each view."""
FIRST, VIEWS = 3, 3
"""Number of columns before the features; number of views."""
Sums = tuple[float, float, float, float, float, float]
Shares = tuple[float, float, float]


class Nearness(NamedTuple):
    """The scales of distance: a transfer's weight is exp(-distance), and its distance a sum over features.

    Each field is the difference in a feature that adds 1 to the distance; another kind adds 1 / `kind`. `age`, and
    `late` in the view by recency, are numbers of later transfers.
    """

    size: float
    load: float
    kind: float
    rate: float
    level: float
    begun: float
    like_rate: float
    like_begun: float
    age: float
    late: float


COUNT, EVER, CHANCE = range(3)
"""Positions in the memory of a neighbourhood: transfers kept, transfers ever seen, and a random number."""
FEW = 16
"""Initial room for transfers; it is doubled as needed."""


@compilable
def place(memory: State, values: State, order: Order, value: float) -> int:
    """Return the first position in the order whose value is not below this one."""
    low, high = 0, int(memory[COUNT])
    while low < high:
        middle = (low + high) // 2
        if values[order[middle]] < value:
            low = middle + 1
        else:
            high = middle
    return low


@compilable
def keep(memory: State, values: State, order: Order, value: float) -> int:
    """Return the row for a new transfer, and put the row in order by its value.

    If there is no room, a random transfer is replaced, so that most of the newest and some very old ones remain. The
    random numbers are the same each time (a linear congruence, exact in floats).
    """
    room, count = len(values), int(memory[COUNT])
    row = free = count
    if count == room:
        memory[CHANCE] = (memory[CHANCE] * 16807.0) % 2147483647.0
        row = int(memory[CHANCE]) % room
        free = place(memory, values, order, values[row])
        while order[free] != row:
            free += 1
    while free > 0 and values[order[free - 1]] > value:
        order[free] = order[free - 1]
        free -= 1
    while free < count - 1 and values[order[free + 1]] < value:
        order[free] = order[free + 1]
        free += 1
    order[free], values[row] = row, value
    memory[COUNT], memory[EVER] = min(count + 1.0, float(room)), memory[EVER] + 1.0
    return row


@compilable
def weigh(memory: State, columns: Columns, near: State, features: State, now: float, views: Columns) -> Sums:
    """Weigh all transfers in each view; those that had not ended by `now` have no weight.

    :param near: the reciprocals of the fields of `Nearness`
    :returns: the sum of the weights in each view, then the sum of the weighted values in each view
    """
    values, numbers, ends, sizes, loads, kinds, rates, levels, beguns, likes, agos = columns
    size, load, kind, rate, level, begun, like, ago = features
    by_size, by_load, by_kind, by_rate, by_level, by_begun, by_like, by_ago, by_age, by_late = near
    by_all, by_state, lately = views
    all_whole = state_whole = late_whole = all_sum = state_sum = late_sum = 0.0
    if size != size:  # unknown: all transfers are equally near in size
        size = by_size = 0.0
    newest, row = memory[EVER] - 1.0, 0
    rows = zip(values, numbers, ends, sizes, loads, kinds, rates, levels, beguns, likes, agos)  # noqa: B905
    for value, number, end, its_size, its_load, its_kind, its_rate, its_level, its_begun, its_like, its_ago in rows:
        first = second = third = 0.0
        if end <= now:
            since = newest - number
            age = since * by_age
            larger, busier = abs(its_size - size) * by_size, abs(its_load - load) * by_load
            other = by_kind if its_kind != kind else 0.0
            then, same = abs(its_rate - rate) * by_rate, 0.0
            if then == then:
                apart, before = abs(its_level - level) * by_level, abs(its_begun - begun) * by_begun
                then += apart + 0.5 * before
                same = apart + before + abs(its_like - like) * by_like + abs(its_ago - ago) * by_ago
            else:  # nothing had ended when that transfer began, or when this one does
                then = 0.0
            # Size counts less by state, size and load less by recency; the factors were fitted with `kernel.NEAR`.
            first = exp(-(larger + busier + other + same + age))
            second = exp(-(0.6 * larger + busier + then + age))
            third = exp(-(0.5 * (larger + busier) + same + since * by_late))
            all_whole, state_whole, late_whole = all_whole + first, state_whole + second, late_whole + third
            all_sum, state_sum, late_sum = all_sum + first * value, state_sum + second * value, late_sum + third * value
        by_all[row], by_state[row], lately[row] = first, second, third
        row += 1  # noqa: SIM113
    return all_whole, state_whole, late_whole, all_sum, state_sum, late_sum


@compilable
def below(
    memory: State, values: State, order: Order, views: Columns, shares: tuple[float, float, float], part: float
) -> float:
    """Return the least value at or below which the given part of the weight lies.

    :param shares: factor of the weights in each view; all weights then sum up to 1
    """
    by_all, by_state, lately = views
    in_all, in_state, in_late = shares
    found, last = 0.0, int(memory[COUNT]) - 1
    for i in range(last):
        row = order[i]
        found += by_all[row] * in_all + by_state[row] * in_state + lately[row] * in_late
        if found >= part:
            return values[row]
    return values[order[last]]


class Neighbourhood:
    """Values of transfers, and estimates from those similar to a new one.

    :param near: distances of nearness
    :param most: transfers that are kept
    :param fast: whether to run compiled code
    """

    def __init__(self, near: Nearness, most: int, fast: bool = False) -> None:
        self._most, self._fast = most, fast
        self._near = floats([1 / width for width in near], fast)
        self._features = floats([0.0] * len(Features._fields), fast)
        self._memory = floats([0.0, 0.0, 1.0], fast)
        self._columns: Columns = tuple(floats([], fast) for _ in range(FIRST + len(Features._fields)))
        self._order = integers([], fast)
        self._keep = compiled(keep) if fast else keep
        self._weigh = compiled(weigh) if fast else weigh
        self._below = compiled(below) if fast else below

    def learn(self, value: float, end: float, features: Features) -> None:
        """Learn the value of a transfer, and its end."""
        if self._memory[COUNT] == len(self._order) < self._most:
            self._grow()
        number = self._memory[EVER]
        row = self._keep(self._memory, self._columns[0], self._order, value)
        for column, each in zip(self._columns[1:], (number, end, *features), strict=True):
            column[row] = each

    def _grow(self) -> None:
        """Double the room, up to the limit."""
        more = min(max(FEW, len(self._order)), self._most - len(self._order))
        self._columns = tuple(floats([*column, *([inf] * more)], self._fast) for column in self._columns)
        self._order = integers([*self._order, *([0] * more)], self._fast)

    def quantiles(self, features: Features, now: float, levels: Sequence[float]) -> tuple[float, ...] | None:
        """Return the values below which these shares of similar transfers should lie; None if none had ended."""
        found = self._mean_and_quantiles(features, now, levels)
        return found and found[1:]

    def expected(self, features: Features, now: float) -> tuple[float, float, float] | None:
        """Return the 10th percentile, mean and 90th percentile of similar transfers; None if none had ended."""
        found = self._mean_and_quantiles(features, now, (0.1, 0.9))
        if found is None:
            return None
        mean, low, high = found
        return low, min(max(mean, low), high), high

    def _mean_and_quantiles(self, features: Features, now: float, levels: Sequence[float]) -> tuple[float, ...] | None:
        """Return the weighted mean of similar transfers, then a quantile for each level; None if none had ended."""
        if not self._memory[COUNT]:
            return None
        for i, feature in enumerate(features):
            self._features[i] = feature
        # Not kept between calls: they would be a fifth of the memory of a broker's thousands of neighbourhoods.
        views = tuple(zeros(len(self._order), self._fast) for _ in range(VIEWS))
        sums = self._weigh(self._memory, self._columns, self._near, self._features, now, views)
        wholes, means = sums[:VIEWS], sums[VIEWS:]
        seen = sum(whole > 0.0 for whole in wholes)
        if not seen:
            return None
        by_all, by_state, lately = (1.0 / (seen * whole) if whole > 0.0 else 0.0 for whole in wholes)
        shares = (by_all, by_state, lately)
        mean = fsum(share * total for share, total in zip(shares, means, strict=True))
        values, order = self._columns[0], self._order
        return mean, *(self._below(self._memory, values, order, views, shares, level) for level in levels)
