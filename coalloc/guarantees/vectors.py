"""Scheduling vectors: the order in which paths and streams have their turns in a window (IQ-Paths, section V-B). Pure.

The k-th of the x packets of a window has the virtual deadline (k - 1) / x of the window. The paper's vector VP has the
paths, its VS the streams of a path, each as often as it has packets. (The vectors that the paper prints are derived
differently from what its text says: they have too few or too many entries.)
"""

from collections.abc import Sequence
from typing import NamedTuple

__all__ = ["Turn", "order_turns"]


class Turn(NamedTuple):
    """A turn of a path or a stream in a window. Turns sort in the order in which they are taken.

    :param level: its precedence: turns of lower levels come first
    :param deadline: its virtual deadline, as a share of the window
    :param owner: index of the path or stream
    """

    level: int
    deadline: float
    owner: int


def order_turns(counts: Sequence[int], levels: Sequence[int] | None = None) -> list[Turn]:
    """Return the turns in a window, ordered by level, then by deadline; with equal ones, the lower index comes first.

    :param counts: number of packets in the window, for each path or stream
    :param levels: precedence of each; all have the same if this is None

    >>> [turn.owner + 1 for turn in order_turns([9, 6])]
    [1, 2, 1, 2, 1, 1, 2, 1, 2, 1, 1, 2, 1, 2, 1]
    >>> [turn.owner + 1 for turn in order_turns([5, 4])]
    [1, 2, 1, 2, 1, 2, 1, 2, 1]
    """
    return sorted(
        Turn(levels[index] if levels else 0, number / count, index)
        for index, count in enumerate(counts)
        for number in range(count)
    )
