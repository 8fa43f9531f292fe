"""Common parts of the bank's members: their types, and the rings and ordered windows that keep the last values.

A member is a cheap forecaster of two functions over an array of floats. It keeps its knowledge of one series in a fixed
number of floats, so that thousands of series lie in one array and a compiled loop runs through them. Its functions take
the array and the position where their part begins. They are plain Python, and can be compiled (see
`predictors.compiled`).

Means and medians of the last N values keep these values in a ring or an ordered window. A ring consists of
its size, the number of values in it, the position of the next one, and the values; an ordered window of its size, the
number of values in it, the number ever inserted, the values in ascending order, and the serial number of each.
"""

from collections.abc import Callable, MutableSequence
from typing import NamedTuple

from predictors.compiled import compilable

__all__ = [
    "COUNT",
    "FIRST",
    "NEXT",
    "PLACE",
    "SEEN",
    "SIZE",
    "VALUES",
    "Family",
    "Learn",
    "Member",
    "Say",
    "State",
    "insert",
    "median_of_newest",
    "ordered",
    "push",
    "ring",
]

State = MutableSequence[float]
"""Floats: an array.array("d"), or a NumPy array."""
PLACE = (1 << 48) - 1
"""Mask for positions: for a masked, hence non-negative, index numba omits the check for negative indices."""
Learn = Callable[[State, int, float, float], None]
Say = Callable[[State, int, float], float]
SIZE, COUNT, NEXT, FIRST = 0, 1, 2, 3
"""Positions in a ring; FIRST is the first value."""
SEEN, VALUES = 2, 3
"""Positions in an ordered window, after SIZE and COUNT."""


class Family(NamedTuple):
    """The functions that members of one kind share.

    `learn(state, first, value, at)` learns a positive value observed at `at` (seconds since the epoch), not
    before the previous one; `forecast(state, first, at)` returns the forecast for a time not before the last value, NaN
    while nothing is known.
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


def ring(size: int) -> tuple[float, ...]:
    """Return a ring without values."""
    return (float(size), 0.0, 0.0, *([0.0] * size))


def ordered(size: int) -> tuple[float, ...]:
    """Return an ordered window without values."""
    return (float(size), 0.0, 0.0, *([0.0] * (2 * size)))


@compilable
def push(state: State, first: int, value: float) -> float:
    """Put a value into a ring; return the value that it replaces, or 0."""
    size, count, at = state[first + SIZE], state[first + COUNT], state[first + NEXT]
    place = first + FIRST + int(at)
    oldest = state[place]
    state[place] = value
    state[first + NEXT] = at + 1.0 if at + 1.0 < size else 0.0
    state[first + COUNT] = count + 1.0 if count < size else size
    return oldest


@compilable
def insert(state: State, first: int, value: float) -> None:
    """Put a value into an ordered window; remove the oldest if it is full."""
    size, others, seen = int(state[first + SIZE]), int(state[first + COUNT]), state[first + SEEN]
    values, births = first + VALUES, first + VALUES + size
    free = others
    if others == size:
        free, others = 0, others - 1
        while state[births + free] != seen - size:
            free += 1
    while free > 0 and state[values + free - 1] > value:
        state[values + free] = state[values + free - 1]
        state[births + free] = state[births + free - 1]
        free -= 1
    while free < others and state[values + free + 1] < value:
        state[values + free] = state[values + free + 1]
        state[births + free] = state[births + free + 1]
        free += 1
    state[values + free] = value
    state[births + free] = seen
    state[first + COUNT] = others + 1.0
    state[first + SEEN] = seen + 1.0


@compilable
def median_of_newest(state: State, first: int, window: int) -> float:
    """Return the median of the newest `window` values of an ordered window that is not empty."""
    size, count = int(state[first + SIZE]), min(window, int(state[first + COUNT]))
    values, births = first + VALUES, first + VALUES + size
    oldest = state[first + SEEN] - count
    half, at, seen = (count - 1) // 2, -1, -1
    while seen < half:
        at += 1
        if state[births + at] >= oldest:
            seen += 1
    low = state[values + at]
    if count % 2:
        return low
    at += 1
    while state[births + at] < oldest:
        at += 1
    return 0.5 * (low + state[values + at])
