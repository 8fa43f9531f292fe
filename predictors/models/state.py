"""What a cheap member of the bank is: two functions over a flat piece of memory.

A member keeps what it knows of one series in a fixed number of floats, so that thousands of series lie in one array
and a compiled loop runs through them. Its functions take the memory and where in it their part begins. They are
plain Python, and compile (see `predictors.compiled`).
"""

from collections.abc import Callable, MutableSequence
from typing import NamedTuple

__all__ = ["PLACE", "Family", "Learn", "Member", "Say", "State"]

State = MutableSequence[float]
"""Floats: an array.array("d"), or a NumPy array."""
PLACE = (1 << 48) - 1
"""What a place is masked with: of what cannot be negative, numba does not ask whether it counts from the end."""
Learn = Callable[[State, int, float, float], None]
Say = Callable[[State, int, float], float]


class Family(NamedTuple):
    """The functions that members of one kind share.

    `learn(state, first, value, at)` takes in a positive value that was seen at `at` (seconds since the epoch), not
    before the one before; `forecast(state, first, at)` is for a moment not before the last, NaN while nothing is known.
    """

    name: str
    learn: Learn
    forecast: Say


class Member(NamedTuple):
    """One forecaster of the bank: a family with its parameters.

    `begin` is what its state holds before the first value, its parameters among it; `says` completes "the forecast
    is ...".
    """

    name: str
    family: Family
    begin: tuple[float, ...]
    says: str
