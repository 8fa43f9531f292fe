"""Means over the last few values, and over values of the last hours or days.

Source: Vazhkudai, Schopf and Foster, "Predicting the performance of wide area data transfers" (2002), section 4: AVG5,
AVG15, AVG25, and AVG5hr to AVG10d; the Network Weather Service's sliding windows (SW_AVG) of 5 and 31. The
co-allocation paper (Vazhkudai, 2003) uses the ones over time.
"""

from predictors.compiled import compilable
from predictors.models.state import COUNT, FIRST, NEXT, SIZE, Family, Member, State, push, ring

__all__ = ["COUNTED", "COUNTS", "HOURS", "MEMBERS", "TIMED"]

COUNTS = (5, 15, 25, 31)
HOURS = (5, 15, 25, 120, 240)
MOST = 256
"""Most values that a window over time holds; if there are more, the newest count."""
HOUR = 3600.0
RING, TIMES = 2, 3
"""Positions where the rings begin: RING after two sums; TIMES after length, sum and number of values of a window."""
NAN = float("nan")


@compilable
def count_learn(state: State, first: int, value: float, at: float) -> None:
    """Learn a value. State: the sum, the sum of this round of the ring, and a ring.

    After each whole round, the round's sum replaces the sum, so that rounding errors do not accumulate.
    """
    total = state[first] + (value - push(state, first + RING, value))
    newest = state[first + 1] + value
    whole = state[first + RING + NEXT] == 0.0
    state[first] = newest if whole else total
    state[first + 1] = 0.0 if whole else newest


@compilable
def count_forecast(state: State, first: int, at: float) -> float:
    """Return the mean of the values in the ring."""
    count = state[first + RING + COUNT]
    return state[first] / count if count > 0.0 else NAN


@compilable
def time_learn(state: State, first: int, value: float, at: float) -> None:
    """Learn a value.

    State: the length of the window in seconds, the sum and number of values in it, a ring of times, and the values.
    """
    times = first + TIMES
    size = int(state[times + SIZE])
    place = int(state[times + NEXT])
    values = times + FIRST + size
    total, within = state[first + 1], int(state[first + 2])
    total, within = expired(state, first, at, total, within)
    if within == size:
        total -= state[values + place]
        within -= 1
    push(state, times, at)
    state[values + place] = value
    within += 1
    total += value
    if within == 1 or place == 0:
        total = 0.0
        for back in range(within):
            total += state[values + (place - back) % size]
    state[first + 1] = total
    state[first + 2] = float(within)


@compilable
def expired(state: State, first: int, at: float, total: float, within: int) -> tuple[float, int]:
    """Return the sum and the number of the values that are still in the window at time `at`."""
    times = first + TIMES
    size = int(state[times + SIZE])
    oldest = (int(state[times + NEXT]) - within) % size
    since = at - state[first]
    while within > 0 and state[times + FIRST + oldest] < since:
        total -= state[times + FIRST + size + oldest]
        within -= 1
        oldest = oldest + 1 if oldest + 1 < size else 0
    return total, within


@compilable
def time_forecast(state: State, first: int, at: float) -> float:
    """Return the mean of the values within the window; the last value if there are none."""
    times = first + TIMES
    if state[times + COUNT] == 0.0:
        return NAN
    total, within = expired(state, first, at, state[first + 1], int(state[first + 2]))
    if within > 0:
        return total / within
    size = int(state[times + SIZE])
    return state[times + FIRST + size + (int(state[times + NEXT]) - 1) % size]


COUNTED = Family("mean of the last", count_learn, count_forecast)
TIMED = Family("mean over time", time_learn, time_forecast)


def _span(hours: int) -> str:
    return f"{hours} hours" if hours < 48 else f"{hours // 24} days"


MEMBERS = (
    *(Member(f"mean of {n}", COUNTED, (0.0, 0.0, *ring(n)), f"the mean of the last {n}") for n in COUNTS),
    *(
        Member(
            f"mean over {_span(hours)}",
            TIMED,
            (hours * HOUR, 0.0, 0.0, *ring(MOST), *([0.0] * MOST)),
            f"the mean of the last {_span(hours)}",
        )
        for hours in HOURS
    ),
)
