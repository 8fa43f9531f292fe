"""The median. `statistics` has the same, but takes longer to import than a server needs to answer."""

from collections.abc import Iterable

__all__ = ["median"]


def median(values: Iterable[float]) -> float:
    """Return the middle one of one or more values, or the mean of the two in the middle.

    >>> median([3.0, 1.0, 2.0]), median([1.0, 4.0])
    (2.0, 2.5)
    """
    ordered = sorted(values)
    return (ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) / 2
