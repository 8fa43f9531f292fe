"""Exponential smoothing: each new value moves the level by a share (the gain) of their difference.

Source: the Network Weather Service's bank, with its gains; the same as EWMA in He, Dovrolis and Ammar, "On the
predictability of large transfer TCP throughput" (2005).
"""

from predictors.compiled import compilable
from predictors.models.state import Family, Member, State

__all__ = ["GAINS", "MEMBERS", "SMOOTHING"]

GAINS = (0.05, 0.10, 0.15, 0.20, 0.30, 0.40, 0.50, 0.75)
"""The gains of the Network Weather Service."""
NAN = float("nan")


@compilable
def learn(state: State, first: int, value: float, at: float) -> None:
    """Learn a value. State: gain, level."""
    level = state[first + 1]
    state[first + 1] = value if level != level else level + state[first] * (value - level)


@compilable
def forecast(state: State, first: int, at: float) -> float:
    """Return the level."""
    return state[first + 1]


SMOOTHING = Family("exponential smoothing", learn, forecast)

MEMBERS = tuple(
    Member(f"smoothing {gain:.2f}", SMOOTHING, (gain, NAN), f"exponential smoothing with gain {gain:g}")
    for gain in GAINS
)
