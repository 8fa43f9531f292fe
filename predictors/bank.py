"""The bank: all cheap forecasters (members), which learn together, one value at a time, for any number of series.

A series is a set of transfers that belong together: one pair of hosts, one source, or one class of sizes. The state of
all members for a series is one row of floats, so that learning and forecasting are a loop over members, which runs as
plain Python or compiled.
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
from predictors.models.state import PLACE, Family, Learn, Member, Say, State

__all__ = ["CONSTANT", "MEMBERS", "Layout", "forecast_one", "learn_all"]

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
"""All families. The index is the family's number in `learn_all` and `forecast_one`; a row has members in this order."""
CONSTANT = tuple(member for member in MEMBERS if FAMILIES.index(member.family) < 4)
"""Members that take O(1) time per value, however long their window is."""
NAN = float("nan")


class Layout:
    """The positions of the members' states in the row of a series.

    `kinds` has the index in FAMILIES of each member, `firsts` the position where its part begins, and `empty` is the
    row of a new series.
    """

    def __init__(self, members: Sequence[Member] = MEMBERS) -> None:
        self.members = tuple(sorted(members, key=lambda member: FAMILIES.index(member.family)))
        self.kinds = array("q", (FAMILIES.index(member.family) for member in self.members))
        self.firsts = array("q", accumulate((len(member.begin) for member in self.members[:-1]), initial=0))
        self.empty = tuple(value for member in self.members for value in member.begin)


@compilable
def learn_all(
    kinds: Sequence[int],
    firsts: Sequence[int],
    row: State,
    base: int,
    account: State,
    sums: int,
    ring: int,
    value: float,
    at: float,
) -> float:
    """Forecast a value by all members, record their errors, and let them learn it, one family after the other.

    :param base: position in `row` where the series begins
    :param sums: position in `account` of the sums of the errors, which the sums of their squares follow
    :param ring: position in `account` for this value's errors, one per member; -1 to store none
    :returns: 1.0 if the last member made a forecast, else 0.0; all members do so from the second value on
    """
    done, where = (0, NAN), (base, sums, ring)
    done = learn_family(0, last_learn, last_forecast, done, kinds, firsts, row, account, where, value, at)
    done = learn_family(1, mean_learn, mean_forecast, done, kinds, firsts, row, account, where, value, at)
    done = learn_family(2, smooth_learn, smooth_forecast, done, kinds, firsts, row, account, where, value, at)
    done = learn_family(3, count_learn, count_forecast, done, kinds, firsts, row, account, where, value, at)
    done = learn_family(4, time_learn, time_forecast, done, kinds, firsts, row, account, where, value, at)
    done = learn_family(5, ordered_learn, median_forecast, done, kinds, firsts, row, account, where, value, at)
    done = learn_family(6, ordered_learn, trimmed_forecast, done, kinds, firsts, row, account, where, value, at)
    done = learn_family(7, adaptive_learn, adaptive_forecast, done, kinds, firsts, row, account, where, value, at)
    done = learn_family(8, ar_learn, ar_forecast, done, kinds, firsts, row, account, where, value, at)
    done = learn_family(9, holt_learn, holt_forecast, done, kinds, firsts, row, account, where, value, at)
    done = learn_family(10, rules_learn, rules_forecast, done, kinds, firsts, row, account, where, value, at)
    done = learn_family(11, season_learn, season_forecast, done, kinds, firsts, row, account, where, value, at)
    return 1.0 if done[1] == done[1] else 0.0


@compilable
def learn_family(
    kind: int,
    learn: Learn,
    forecast: Say,
    done: tuple[int, float],
    kinds: Sequence[int],
    firsts: Sequence[int],
    row: State,
    account: State,
    where: tuple[int, int, int],
    value: float,
    at: float,
) -> tuple[int, float]:
    """Run `learn_all` for one family; this is compiled once per family, with its functions inlined in the loop.

    :param done: number of members that have learned so far, and the error of the last one
    :param where: `base`, `sums` and `ring`
    :returns: `done` after this family
    """
    i, error = done
    base, sums, ring = where
    members = len(kinds)
    while i < members and kinds[i] == kind:
        first = (base + firsts[i]) & PLACE
        error = abs(forecast(row, first, at) - value)
        if error == error:
            here = (sums + i) & PLACE
            account[here] += error
            account[here + members] += error * error
            if ring >= 0:
                account[ring + i] = error
        learn(row, first, value, at)
        i += 1
    return i, error


@compilable
def forecast_one(kind: int, state: State, first: int, at: float) -> float:
    """Return one member's forecast for a time; NaN while it knows nothing."""
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
