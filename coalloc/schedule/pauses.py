"""Number of attempts with a failing source, and the pauses between them. The caller decides what a failure is."""

from random import Random

__all__ = ["TRIES", "pause_seconds"]

TRIES = 5
"""Failures in a row, without a useful delivery between them, after which a source is not used again."""
FIRST, LONGEST = 0.5, 30.0
"""Seconds before a failed source is tried again: doubled each time, between these bounds."""
LONGEST_RETRY_AFTER = 300.0
"""Most seconds that a server may ask for: one that asks for more is tried again earlier, and soon not used again."""
SPREAD = 0.25
"""Fraction by which a pause may be longer, so that transfers that failed together do not come back together."""


def pause_seconds(failures: int, retry_after: float | None, chance: Random) -> float:
    """Return the seconds until a source is tried again after `failures` failures in a row, 1 or more.

    :param retry_after: seconds that its server asks to wait, if it does; the pause is never shorter, up to
        LONGEST_RETRY_AFTER

    >>> [round(pause_seconds(n, None, Random(1)), 2) for n in (1, 2, 3, 9)]
    [0.52, 1.03, 2.07, 31.01]
    >>> [round(pause_seconds(n, after, Random(1))) for n, after in ((1, 20.0), (2, 20.0), (1, 100.0), (1, 3600.0))]
    [21, 31, 103, 310]
    """
    least = max(FIRST, min(retry_after or 0.0, LONGEST_RETRY_AFTER))
    doubled: float = least * 2 ** (failures - 1)
    return max(least, min(LONGEST, doubled)) * (1 + SPREAD * chance.random())
