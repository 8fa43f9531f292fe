"""The last value, and the mean of all: the shortest and the longest memory that a forecaster can have.

Source: the Network Weather Service's bank (Wolski, "Dynamically forecasting network performance using the Network
Weather Service", 1998): LAST and RUN_AVG; Vazhkudai, Schopf and Foster (2002): LV and AVG.
"""

from predictors.compiled import compilable
from predictors.models.state import Family, Member, State

__all__ = ["LAST", "MEAN", "MEMBERS"]

NAN = float("nan")


@compilable
def last_learn(state: State, first: int, value: float, at: float) -> None:
    """Learn a value. State: the value."""
    state[first] = value


@compilable
def last_forecast(state: State, first: int, at: float) -> float:
    """Return the last value."""
    return state[first]


@compilable
def mean_learn(state: State, first: int, value: float, at: float) -> None:
    """Learn a value. State: the number of values, and their mean."""
    count = state[first] + 1.0
    state[first] = count
    state[first + 1] = value if count == 1.0 else state[first + 1] + (value - state[first + 1]) / count


@compilable
def mean_forecast(state: State, first: int, at: float) -> float:
    """Return the mean of all values."""
    return state[first + 1]


LAST = Family("last", last_learn, last_forecast)
MEAN = Family("running mean", mean_learn, mean_forecast)

MEMBERS = (
    Member("last", LAST, (NAN,), "the last value"),
    Member("running mean", MEAN, (0.0, NAN), "the mean of all"),
)
