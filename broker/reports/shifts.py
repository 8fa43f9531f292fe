"""A test of whether later values are larger than earlier ones by more than chance; pure."""

from collections.abc import Sequence
from itertools import combinations

__all__ = ["MOST", "shifted"]

MOST = 16
"""The most values that can be ranked: there are up to 12,870 ways to divide them."""


def shifted(before: Sequence[float], after: Sequence[float]) -> float:
    """Return the one-sided p-value of the exact rank sum test (Wilcoxon 1945): how often chance alone would rank the
    later values as high as they are, or higher.

    If nothing has changed, each choice of the later values among all values is equally likely. So the p-value is the
    share of those choices whose ranks add up to at least the observed sum. Equal values share the mean of their ranks,
    which does not change this.

    >>> shifted([1.0, 2.0, 3.0], [4.0, 5.0, 6.0])
    0.05

    :raises ValueError: when a side has no values, or both together more than 16
    """
    values = [*before, *after]
    if not before or not after or len(values) > MOST:
        raise ValueError(f"{len(before)} and {len(after)} values cannot be compared: 1 of each, 16 in all")
    ranks = [_twice_the_rank(value, values) for value in values]
    seen = sum(ranks[len(before) :])
    sums = [sum(chosen) for chosen in combinations(ranks, len(after))]
    return sum(each >= seen for each in sums) / len(sums)


def _twice_the_rank(value: float, values: Sequence[float]) -> int:
    """Return twice the rank of a value: an integer, so that sums are exact."""
    return 2 * sum(each < value for each in values) + sum(each == value for each in values) + 1
