"""Limit of the failures of a source, and the pauses after them. The caller decides what counts as a failure."""

from random import Random

__all__ = ["TRIES", "USEFUL", "pause_seconds"]

TRIES = 5
"""Consecutive failures, without a useful delivery in between, after which a source is not used again."""
USEFUL = 1 << 20
"""Bytes that must be delivered after a failure for it to be forgotten."""
FIRST, LONGEST = 0.5, 30.0
"""First and longest pause of a failed source in seconds; it doubles with each failure."""
LONGEST_RETRY_AFTER = 300.0
"""Longest pause in seconds that a server may request; if it requests more, it is retried earlier, and soon dropped."""
SPREAD = 0.25
"""Largest random extension of a pause, as a fraction, so that transfers that failed together retry at other times."""


def pause_seconds(failures: int, retry_after: float | None, chance: Random) -> float:
    """Return the seconds until a source is tried again after `failures` consecutive failures, 1 or more.

    :param retry_after: minimum seconds of the pause, if the server requests one; limited to LONGEST_RETRY_AFTER

    >>> [round(pause_seconds(n, None, Random(1)), 2) for n in (1, 2, 3, 9)]
    [0.52, 1.03, 2.07, 31.01]
    >>> [round(pause_seconds(n, after, Random(1))) for n, after in ((1, 20.0), (2, 20.0), (1, 100.0), (1, 3600.0))]
    [21, 31, 103, 310]
    """
    least = max(FIRST, min(retry_after or 0.0, LONGEST_RETRY_AFTER))
    doubled: float = least * 2 ** (failures - 1)
    return max(least, min(LONGEST, doubled)) * (1 + SPREAD * chance.random())
