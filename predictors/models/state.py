"""The cheap members of the bank: each is two functions over a flat piece of memory.

A member keeps its knowledge of one series in a fixed number of floats, so that thousands of series lie in one array
and a compiled loop runs through them. Its functions take the memory and the position where their part begins. They are
plain Python, and can be compiled (see `predictors.compiled`).
"""

from collections.abc import Callable, MutableSequence
from typing import NamedTuple

__all__ = ["PLACE", "Family", "Learn", "Member", "Say", "State"]

State = MutableSequence[float]
"""Floats: an array.array("d"), or a NumPy array."""
PLACE = (1 << 48) - 1
"""Mask for positions: for a masked, hence non-negative, index numba omits the check for negative indices."""
Learn = Callable[[State, int, float, float], None]
Say = Callable[[State, int, float], float]


class Family(NamedTuple):
    """The functions that members of one kind share.

    `learn(state, first, value, at)` learns a positive value observed at `at` (seconds since the epoch), not
    before the previous one; `forecast(state, first, at)` is for a time not before the last, NaN while nothing is known.
    """

    name: str
    learn: Learn
    forecast: Say


class Member(NamedTuple):
    """One forecaster of the bank: a family with its parameters.

    `begin` is its initial state, including its parameters; `says` completes "the forecast is ...".
    """

    name: str
    family: Family
    begin: tuple[float, ...]
    says: str
