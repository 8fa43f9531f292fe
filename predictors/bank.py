"""All cheap members at once, for any number of series, one value at a time: what selection chooses from.

A series is what belongs together: one pair of hosts, one source, one class of sizes. What all members know of it is
one row of floats, so that learning and forecasting are a loop over members, which runs as it is, or compiled.
"""

from array import array
from collections.abc import Sequence
from itertools import accumulate

from predictors.compiled import compilable
from predictors.models import autoregressive, holt_winters, last, means, medians, smoothing
from predictors.models.autoregressive import forecast as ar_forecast
from predictors.models.autoregressive import learn as ar_learn
from predictors.models.holt_winters import (
    holt_forecast,
    holt_learn,
    rules_forecast,
    rules_learn,
    season_forecast,
    season_learn,
)
from predictors.models.last import last_forecast, last_learn, mean_forecast, mean_learn
from predictors.models.means import count_forecast, count_learn, time_forecast, time_learn
from predictors.models.medians import adaptive_forecast, adaptive_learn, median_forecast, trimmed_forecast
from predictors.models.medians import learn as ordered_learn
from predictors.models.smoothing import forecast as smooth_forecast
from predictors.models.smoothing import learn as smooth_learn
from predictors.models.state import Family, Member, State

__all__ = ["CONSTANT", "MEMBERS", "Layout", "forecast_one", "learn_one"]

MEMBERS: tuple[Member, ...] = (
    *last.MEMBERS,
    *smoothing.MEMBERS,
    *means.MEMBERS,
    *medians.MEMBERS,
    *autoregressive.MEMBERS,
    *holt_winters.MEMBERS,
)
FAMILIES: tuple[Family, ...] = (
    last.LAST,
    last.MEAN,
    smoothing.SMOOTHING,
    means.COUNTED,
    means.TIMED,
    medians.MEDIAN,
    medians.TRIMMED_MEAN,
    medians.ADAPTIVE_MEDIAN,
    autoregressive.AUTOREGRESSIVE,
    holt_winters.HOLT,
    holt_winters.RULES,
    holt_winters.SEASON,
)
"""In the order in which `learn_one` and `forecast_one` know them."""
CONSTANT = tuple(member for member in MEMBERS if FAMILIES.index(member.family) < 4)
"""Those whose work does not depend on a window: O(1) a value."""


class Layout:
    """Where what a member knows lies in the row of a series.

    `kinds` are places in FAMILIES, `firsts` where each member's part begins, `empty` the row of a series of which
    nothing is known yet.
    """

    def __init__(self, members: Sequence[Member] = MEMBERS) -> None:
        self.members = tuple(members)
        self.kinds = array("q", (FAMILIES.index(member.family) for member in members))
        self.firsts = array("q", accumulate((len(member.begin) for member in members[:-1]), initial=0))
        self.empty = array("d", (value for member in members for value in member.begin))


@compilable
def learn_one(kind: int, state: State, first: int, value: float, at: float) -> None:
    """One member takes in a value."""
    if kind == 0:
        last_learn(state, first, value, at)
    elif kind == 1:
        mean_learn(state, first, value, at)
    elif kind == 2:
        smooth_learn(state, first, value, at)
    elif kind == 3:
        count_learn(state, first, value, at)
    elif kind == 4:
        time_learn(state, first, value, at)
    elif kind < 7:
        ordered_learn(state, first, value, at)
    elif kind == 7:
        adaptive_learn(state, first, value, at)
    elif kind == 8:
        ar_learn(state, first, value, at)
    elif kind == 9:
        holt_learn(state, first, value, at)
    elif kind == 10:
        rules_learn(state, first, value, at)
    else:
        season_learn(state, first, value, at)


@compilable
def forecast_one(kind: int, state: State, first: int, at: float) -> float:
    """What one member says of a moment; NaN while it knows nothing."""
    if kind == 0:
        return last_forecast(state, first, at)
    if kind == 1:
        return mean_forecast(state, first, at)
    if kind == 2:
        return smooth_forecast(state, first, at)
    if kind == 3:
        return count_forecast(state, first, at)
    if kind == 4:
        return time_forecast(state, first, at)
    if kind == 5:
        return median_forecast(state, first, at)
    if kind == 6:
        return trimmed_forecast(state, first, at)
    if kind == 7:
        return adaptive_forecast(state, first, at)
    if kind == 8:
        return ar_forecast(state, first, at)
    if kind == 9:
        return holt_forecast(state, first, at)
    if kind == 10:
        return rules_forecast(state, first, at)
    return season_forecast(state, first, at)
