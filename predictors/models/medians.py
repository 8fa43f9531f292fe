"""Medians and trimmed means over the last few values, and a median whose window adapts.

Source: the Network Weather Service's bank: MEDIAN over 31 and 5, TRIM_MEAN of 30 % over 31 and 51, ADAPT_MED between 5
and 21 and between 21 and 51; Vazhkudai, Schopf and Foster (2002): MED5, MED15, MED25. Unlike the NWS code, this one
compares the current window with windows exactly one offset shorter and longer, and keeps to the limits.
"""

from predictors.compiled import compilable
from predictors.models.state import COUNT, VALUES, Family, Member, State, insert, median_of_newest, ordered

__all__ = ["ADAPTIVE", "ADAPTIVE_MEDIAN", "COUNTS", "MEDIAN", "MEMBERS", "TRIMMED", "TRIMMED_MEAN"]

COUNTS = (5, 15, 25, 31)
TRIMMED = (31, 51)
TRIM = 0.3
"""Share of the values that a trimmed mean leaves out, half of it at each end."""
ADAPTIVE = ((5, 21), (21, 51))
OFFSET = 2
"""Values by which an adaptive window grows or shrinks at a time; even, so that the window stays odd."""
LEAST, MOST, WINDOW, ADAPTED = 0, 1, 2, 3
"""Positions of an adaptive median's limits, its window, and its values."""
NAN = float("nan")


@compilable
def learn(state: State, first: int, value: float, at: float) -> None:
    """Learn a value. State: an ordered window."""
    insert(state, first, value)


@compilable
def median_forecast(state: State, first: int, at: float) -> float:
    """Return the median of the window; NaN if it is empty."""
    count = int(state[first + COUNT])
    if count == 0:
        return NAN
    middle = first + VALUES + count // 2
    return state[middle] if count % 2 else 0.5 * (state[middle - 1] + state[middle])


@compilable
def trimmed_forecast(state: State, first: int, at: float) -> float:
    """Return the mean of the window without its lowest and highest values; NaN if it is empty."""
    count = int(state[first + COUNT])
    left_out = int(TRIM / 2 * count)
    total = 0.0
    for i in range(first + VALUES + left_out, first + VALUES + count - left_out):
        total += state[i]
    return total / (count - 2 * left_out) if count > 0 else NAN


@compilable
def adaptive_learn(state: State, first: int, value: float, at: float) -> None:
    """Learn a value. State: shortest, longest and current window, then an ordered window.

    The current window becomes the one whose median would have been nearest to the value.
    """
    if state[first + ADAPTED + COUNT] > 0.0:
        window = int(state[first + WINDOW])
        shorter = max(window - OFFSET, int(state[first + LEAST]))
        longer = min(window + OFFSET, int(state[first + MOST]))
        least = abs(median_of_newest(state, first + ADAPTED, window) - value)
        less = abs(median_of_newest(state, first + ADAPTED, shorter) - value)
        more = abs(median_of_newest(state, first + ADAPTED, longer) - value)
        if less < least and less <= more:
            state[first + WINDOW] = float(shorter)
        elif more < least:
            state[first + WINDOW] = float(longer)
    insert(state, first + ADAPTED, value)


@compilable
def adaptive_forecast(state: State, first: int, at: float) -> float:
    """Return the median of the current window; NaN before the first value."""
    if state[first + ADAPTED + COUNT] == 0.0:
        return NAN
    return median_of_newest(state, first + ADAPTED, int(state[first + WINDOW]))


MEDIAN = Family("median of the last", learn, median_forecast)
TRIMMED_MEAN = Family("trimmed mean", learn, trimmed_forecast)
ADAPTIVE_MEDIAN = Family("adaptive median", adaptive_learn, adaptive_forecast)

MEMBERS = (
    *(Member(f"median of {n}", MEDIAN, ordered(n), f"the median of the last {n}") for n in COUNTS),
    *(Member(f"trimmed mean of {n}", TRIMMED_MEAN, ordered(n), f"the trimmed mean of the last {n}") for n in TRIMMED),
    *(
        Member(
            f"adaptive median {least}-{most}",
            ADAPTIVE_MEDIAN,
            (float(least), float(most), float((least + most) // 2 | 1), *ordered(most)),
            f"a median over the last {least} to {most}, whichever number had the least error",
        )
        for least, most in ADAPTIVE
    ),
)
