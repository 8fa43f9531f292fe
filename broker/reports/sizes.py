"""Classes of sizes, as people read them; pure."""

from broker.reports.words import written
from predictors.context import SIZES

__all__ = ["sized"]


def sized(size_class: int) -> str:
    """Which sizes a class is of.

    >>> sized(0), sized(6), sized(8)
    ('up to 1 MB', '1 GB to 4 GB', '16 GB and more')
    """
    if not size_class:
        return f"up to {written(SIZES[0], 'bytes')}"
    if size_class == len(SIZES):
        return f"{written(SIZES[-1], 'bytes')} and more"
    return f"{written(SIZES[size_class - 1], 'bytes')} to {written(SIZES[size_class], 'bytes')}"
