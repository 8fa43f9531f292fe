"""The last few values of a series, in a ring or sorted: the storage of means and medians over counts.

A ring of `size`: size, number of values in it, position of the next one, and the values. An ordered window of
`size`: size, number of values in it, number ever inserted, the values in ascending order, and the number of each.
"""

from predictors.compiled import compilable
from predictors.models.state import State

__all__ = ["COUNT", "FIRST", "NEXT", "SEEN", "SIZE", "VALUES", "insert", "median_of_newest", "ordered", "push", "ring"]

SIZE, COUNT, NEXT, FIRST = 0, 1, 2, 3
"""Positions in a ring; FIRST is the first value."""
SEEN, VALUES = 2, 3
"""Positions in an ordered window, after SIZE and COUNT."""


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
