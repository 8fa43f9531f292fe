"""Whether what was seen later is larger than what was seen before, or only by chance; pure."""

from collections.abc import Sequence
from itertools import combinations

__all__ = ["MOST", "shifted"]

MOST = 16
"""Values that are ranked at most: they can be divided in 12,870 ways."""


def shifted(before: Sequence[float], after: Sequence[float]) -> float:
    """The rank sum test of Wilcoxon (1945), exact, for one side: how often chance alone would rank the later values as
    high as they are, or higher.

    If nothing has changed, each choice of which of all values are the later ones is equally likely. So the share of
    those choices whose ranks add up to as much as they did is the probability; equal values share the mean of their
    ranks, which changes nothing of that.

    >>> shifted([1.0, 2.0, 3.0], [4.0, 5.0, 6.0])
    0.05

    :raises ValueError: of no values, or more than 16
    """
    values = [*before, *after]
    if not before or not after or len(values) > MOST:
        raise ValueError(f"{len(before)} and {len(after)} values cannot be compared: 1 of each, 16 in all")
    ranks = [_twice_the_rank(value, values) for value in values]
    seen = sum(ranks[len(before) :])
    sums = [sum(chosen) for chosen in combinations(ranks, len(after))]
    return sum(each >= seen for each in sums) / len(sums)


def _twice_the_rank(value: float, values: Sequence[float]) -> int:
    """Whole numbers, which add up without error."""
    return 2 * sum(each < value for each in values) + sum(each == value for each in values) + 1
