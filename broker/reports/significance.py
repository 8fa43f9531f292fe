"""Statistical tests: the probability that differences are due to chance; and intervals of medians.

Errors before and after a moment are compared by the rank sum test.

Forecasters are compared by the exact sign test (Conover, Practical Nonparametric Statistics, 3.4). It counts the
observations in which one forecaster was more accurate than the other, so that single large errors do not dominate. One
week of one pair is one observation, because errors of successive transfers are correlated. p-values are adjusted for
the number of comparisons (Holm, "A simple sequentially rejective multiple test procedure", 1979).

The interval of a median has the values that the sign test does not reject, so it assumes no distribution.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from itertools import accumulate, combinations
from typing import Generic, NamedTuple, TypeVar

from broker.models.scores import REPLAYED, ForecasterRecord

__all__ = [
    "ALPHA",
    "FEWEST",
    "MOST",
    "Contest",
    "Duel",
    "contests",
    "duels",
    "holm",
    "median_interval",
    "quantile",
    "shifted",
    "sign_test",
]

FEWEST = 6
"""Fewest observations for a p-value: with fewer than six, even all wins would not be significant."""
ALPHA = 0.05
K = TypeVar("K", bound=Hashable)
MOST = 16
"""Most values in a rank sum test, which checks all of up to 12,870 ways to divide them."""
LARGEST = 1000
"""Most values for which an interval is computed exactly; for more, it is a little wider than necessary."""


class Duel(NamedTuple):
    """The comparison of one forecaster with the broker's own.

    :param log_error: mean |log(p50 / actual)| over all transfers
    :param won: number of observations in which it was more accurate
    :param lost: number of observations in which it was less accurate
    :param p: p-value, adjusted for all comparisons; None if there are too few observations
    """

    forecaster: str
    transfers: int
    log_error: float
    won: int
    lost: int
    p: float | None


class Contest(NamedTuple, Generic[K]):
    """The most accurate forecaster of one group, compared with the broker's own, or if that is the best, the second."""

    where: K
    best: str
    log_error: float
    rival: str
    rival_error: float
    transfers: int
    won: int
    lost: int
    p: float | None


def sign_test(won: int, lost: int) -> float:
    """Return the two-sided p-value of the sign test; ties are left out.

    >>> sign_test(6, 0), sign_test(5, 5)
    (0.03125, 1.0)
    """
    total, term, below = won + lost, 1, 0
    for i in range(min(won, lost) + 1):
        below += term
        term = term * (total - i) // (i + 1)
    return min(1.0, below / 2 ** (total - 1)) if total else 1.0


def holm(chances: Sequence[float], weights: Sequence[float] | None = None) -> list[float]:
    """Return p-values adjusted for multiple comparisons, to bound the probability of any false positive.

    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    >>> holm([0.01, 0.01], [1.0, 4.0])
    [0.0125, 0.0125]

    :param weights: importance of each comparison, above 0 and independent of its outcome; equal by default. Those of a
        greater weight are adjusted less
    """
    weighed = weights or [1.0] * len(chances)
    adjusted, least = [0.0] * len(chances), 0.0
    order = sorted(range(len(chances)), key=lambda each: chances[each] / weighed[each])
    remaining = reversed(list(accumulate(weighed[i] for i in reversed(order))))
    for i, weight in zip(order, remaining, strict=True):
        least = max(least, min(1.0, weight / weighed[i] * chances[i]))
        adjusted[i] = least
    return adjusted


def duels(records: Iterable[ForecasterRecord], by: Callable[[ForecasterRecord], K]) -> dict[K, list[Duel]]:
    """Return the comparison of each forecaster with the broker's own in each group, sorted by error.

    The broker's own forecaster is included, without a p-value.

    :param by: function that returns the group of a record
    """
    places: defaultdict[K, defaultdict[str, list[ForecasterRecord]]] = defaultdict(lambda: defaultdict(list))
    for record in records:
        places[by(record)][record.forecaster].append(record)
    found = {
        place: sorted((_duel(name, some) for name, some in each.items()), key=lambda duel: duel.log_error)
        for place, each in places.items()
    }
    tried = [(place, i) for place, each in found.items() for i, duel in enumerate(each) if duel.p is not None]
    chances = [found[place][i].p or 0.0 for place, i in tried]
    for (place, i), chance in zip(tried, holm(chances), strict=True):
        found[place][i] = found[place][i]._replace(p=chance)
    return found


def _duel(name: str, records: Sequence[ForecasterRecord]) -> Duel:
    transfers, errors = sum(each.transfers for each in records), sum(each.absolute_log_errors for each in records)
    won, lost = sum(each.won for each in records), sum(each.lost for each in records)
    p = sign_test(won, lost) if name != REPLAYED and won + lost >= FEWEST else None
    return Duel(name, transfers, errors / transfers, won, lost, p)


def contests(found: Mapping[K, Sequence[Duel]]) -> list[Contest[K]]:
    """Return the most accurate forecaster of each group, most transfers first; skip groups with only one forecaster."""
    made = [_contest(where, each) for where, each in found.items() if len(each) > 1]
    return sorted(made, key=lambda each: -each.transfers)


def _contest(where: K, duels: Sequence[Duel]) -> Contest[K]:
    best, second = duels[0], duels[1]
    if best.forecaster == REPLAYED:
        won, lost, rival, p = second.lost, second.won, second, second.p
    else:
        rival = next((each for each in duels if each.forecaster == REPLAYED), second)
        won, lost, p = best.won, best.lost, best.p
    return Contest(
        where, best.forecaster, best.log_error, rival.forecaster, rival.log_error, best.transfers, won, lost, p
    )


def shifted(before: Sequence[float], after: Sequence[float]) -> float:
    """Return the one-sided p-value of the exact rank sum test (Wilcoxon 1945).

    It is the probability that chance alone ranks the later values at least as high as observed. If nothing has changed,
    each choice of the later values among all values is equally likely. So the p-value is the share of choices whose
    rank sum is at least the observed one. Equal values get the mean of their ranks.

    >>> shifted([1.0, 2.0, 3.0], [4.0, 5.0, 6.0])
    0.05

    :raises ValueError: when a side has no values, or both together more than 16
    """
    values = [*before, *after]
    if not before or not after or len(values) > MOST:
        raise ValueError(
            f"{len(before)} and {len(after)} values cannot be compared: give each side one, and at most 16"
        )
    ranks = [_twice_the_rank(value, values) for value in values]
    seen = sum(ranks[len(before) :])
    sums = [sum(chosen) for chosen in combinations(ranks, len(after))]
    return sum(each >= seen for each in sums) / len(sums)


def _twice_the_rank(value: float, values: Sequence[float]) -> int:
    """Return twice the rank of a value: an integer, so that sums are exact."""
    return 2 * sum(each < value for each in values) + sum(each == value for each in values) + 1


def quantile(values: Sequence[float], weights: Sequence[float], share: float) -> float:
    """Return the smallest value at which the values up to it have this share of all weight.

    >>> quantile([3.0, 1.0, 2.0], [1.0, 1.0, 1.0], 0.5), quantile([3.0, 1.0, 2.0], [4.0, 1.0, 1.0], 0.5)
    (2.0, 3.0)

    :raises ValueError: when there are no values
    """
    if not values:
        raise ValueError("an empty list has no quantile")
    wanted, weight, order = share * math.fsum(weights), 0.0, sorted(zip(values, weights, strict=True))
    for value, each in order:
        weight += each
        if weight >= wanted:
            return value
    return order[-1][0]


def median_interval(values: Sequence[float], weights: Sequence[float]) -> tuple[float, float] | None:
    """Return the 95 % confidence interval of a median by the sign test; None for fewer than six values.

    Values with unequal weights count as the smaller number of equal ones that has the same variance (Kish 1965).

    >>> median_interval([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0], [1.0] * 8)
    (1.0, 8.0)
    >>> median_interval([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0], [1.0] * 9)
    (2.0, 8.0)
    """
    squares = math.fsum(each * each for each in weights)
    count = int(math.fsum(weights) ** 2 / squares + 1e-9) if squares else 0
    count = min(count, LARGEST)
    if count < FEWEST:
        return None
    outside = _outside(count)
    low, high = ((place + 0.5) / count for place in (outside, count - 1 - outside))
    return quantile(values, weights, low), quantile(values, weights, high)


def _outside(count: int) -> int:
    """Return the number of the smallest, and of the largest, of six or more values that are outside of the interval."""
    term = below = 1
    found = 0
    while 2 * below < ALPHA * 2**count:  # the p-value of `found` values on one side and all others on the other side
        term = term * (count - found) // (found + 1)
        below += term
        found += 1
    return found - 1
