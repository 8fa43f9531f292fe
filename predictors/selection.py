"""Selection of a member of the bank: the one with the least error, over all values or the newest few.

Source: the Network Weather Service (Wolski, 1998): all members forecast each value, and the one with the least mean
absolute (MAE) or mean square (MSE) error, of all errors or of the newest 1 to 100, forecasts the next one. Selection
is robust: for any series its error is close to that of the best member, though seldom as small.
"""

from collections.abc import Sequence
from functools import cache
from math import inf

from predictors.bank import MEMBERS, Layout, forecast_one, learn_all
from predictors.base import Forecaster
from predictors.compiled import compilable, compiled, floats, integers
from predictors.context import LEVELS, Key
from predictors.experience import Ago, Experience, telling
from predictors.guarantee import Conformal
from predictors.models.state import Member, State
from predictors.observation import Forecast, Observation, Query

__all__ = ["WINDOWS", "Selected", "account_of", "pick", "replay", "step"]

WINDOWS = (1, 5, 10, 20, 30, 50, 100)
"""Numbers of newest errors for a windowed selection, as in the Network Weather Service; 0 stands for all errors."""
LONGEST_WINDOW = max(WINDOWS)


def account_of(members: int, capacity: int = LONGEST_WINDOW) -> list[float]:
    """Return a new account, which records the errors of the members for one series.

    It holds its capacity, the number of errors seen, the sums of the errors and of their squares by member, and the
    newest errors of each member, in a ring.

    :param capacity: the longest window that will be used
    """
    return [float(capacity), 0.0, *([0.0] * (members * (2 + capacity)))]


@compilable
def step(
    kinds: Sequence[int],
    firsts: Sequence[int],
    row: State,
    base: int,
    account: State,
    start: int,
    value: float,
    at: float,
) -> None:
    """Forecast a value by all members, record their errors, and let them learn it.

    :param base: position in `row` where the series begins
    :param start: position in `account` where the account of the series begins
    """
    members = len(kinds)
    capacity, seen = int(account[start]), int(account[start + 1])
    sums, ring = start + 2, -1
    if capacity > 0:
        ring = sums + (2 + seen % capacity) * members
    account[start + 1] = seen + learn_all(kinds, firsts, row, base, account, sums, ring, value, at)


@compilable
def pick(members: int, account: State, start: int, window: int, squared: bool) -> int:
    """Return the index of the member with the least error, the first one in a tie.

    :param window: number of newest errors to use; 0 for all
    """
    capacity, seen = int(account[start]), int(account[start + 1])
    sums, ring = start + 2 + (members if squared else 0), start + 2 + 2 * members
    used = min(window, seen, capacity)
    best, least = 0, inf
    for i in range(members):
        total = 0.0
        if window == 0:
            total = account[sums + i]
        else:
            for back in range(1, used + 1):
                error = account[ring + (seen - back) % capacity * members + i]
                total += error * error if squared else error
        if total < least:
            best, least = i, total
    return best


@compilable
def replay(
    kinds: Sequence[int],
    firsts: Sequence[int],
    rows: State,
    accounts: State,
    series: Sequence[int],
    starts: Sequence[float],
    ends: Sequence[float],
    values: Sequence[float],
    by_start: Sequence[int],
    by_end: Sequence[int],
    into: State,
) -> None:
    """Run a whole log at once: write the forecast at the start of each transfer, from transfers ended by then.

    The forecast is that of the member with the least mean absolute error.

    :param rows: the rows of all series, one after the other; `accounts` likewise
    :param series: the series of each transfer
    :param by_start: the transfers in order of their starts; `by_end` in order of their ends
    :param into: output: the forecast of each transfer, NaN if nothing was known
    """
    members = len(kinds)
    size = len(rows) // (len(accounts) // (2 + members * (2 + int(accounts[0]))))
    account = 2 + members * (2 + int(accounts[0]))
    ended = 0
    for n in range(len(by_start)):
        i = by_start[n]
        at = starts[i]
        while ended < len(by_end) and ends[by_end[ended]] <= at:
            j = by_end[ended]
            s = series[j]
            step(kinds, firsts, rows, s * size, accounts, s * account, values[j], ends[j])
            ended += 1
        s = series[i]
        best = pick(members, accounts, s * account, 0, False)
        into[i] = forecast_one(kinds[best], rows, s * size + firsts[best], at)


@cache
def _layout(members: tuple[Member, ...]) -> Layout:
    """Return the layout of these members, shared by all series, of which a broker has thousands."""
    return Layout(members)


class SelectionSeries(Experience):
    """The state of all members for one series, and the bounds from the errors of the selected one."""

    def __init__(self, layout: Layout, capacity: int, fast: bool) -> None:
        super().__init__()
        self.ago = Ago(1)
        self.row = floats(layout.empty, fast)
        self.account = floats(account_of(len(layout.members), capacity), fast)
        self.bounds = Conformal()


class Selected(Forecaster):
    """The member of the bank with the least error so far, selected again for each forecast.

    :param members: candidates; a single one is used as it is
    :param window: number of newest errors to use, 0 for all
    :param squared: whether to use mean square errors in place of absolute ones
    :param level: level of `predictors.context` whose key defines a series
    :param fast: whether to run compiled code
    """

    def __init__(
        self,
        members: Sequence[Member] = MEMBERS,
        *,
        window: int = 0,
        squared: bool = False,
        level: str = "path",
        fast: bool = False,
    ) -> None:
        by = f"least {'MSE' if squared else 'MAE'}{f' of {window}' if window else ''}"
        self._by = "" if level == "path" else f" by {level}"
        self.name = f"{members[0].name if len(members) == 1 else by}{self._by}"
        self._level = LEVELS[level]
        self._window, self._squared, self._fast = window, squared, fast
        self._layout = _layout(tuple(members))
        self._kinds = integers(self._layout.kinds, fast)
        self._firsts = integers(self._layout.firsts, fast)
        self._step = compiled(step) if fast else step
        self._pick = compiled(pick) if fast else pick
        self._one = compiled(forecast_one) if fast else forecast_one
        self._series: dict[Key, SelectionSeries] = {}

    def learn(self, observation: Observation) -> None:
        key = self._level(observation)
        series = self._series.get(key)
        if series is None:
            series = self._series[key] = SelectionSeries(self._layout, self._window, self._fast)
        series.setup(observation)
        rate = telling(observation)
        if rate is None:
            return
        at = series.at(observation.end)
        if (known := series.ago.at(observation.start)) and known[0]:
            series.bounds.learn(known[0], rate)
        self._step(self._kinds, self._firsts, series.row, 0, series.account, 0, rate, at)
        series.rate(at)
        series.ago.learn(at, self._expected(series, at)[1])

    def forecast(self, query: Query) -> Forecast:
        series = self._series.get(self._level(query))
        if series is None:
            return Experience().nothing(self.name)
        if not series.count:
            return series.nothing(self.name)
        best, expected = self._expected(series, series.at(query.at))
        if query.at < series.newest and (known := series.ago.at(query.at)):
            expected = known[0] or expected
        member = self._layout.members[best]
        chosen = "" if len(self._layout.members) == 1 else f", the most accurate of {len(self._layout.members)} so far"
        basis = f"{member.says}{self._by}{chosen}"
        return series.forecast(self.name, series.bounds.around(expected), query, basis)

    def _expected(self, series: SelectionSeries, at: float) -> tuple[int, float]:
        """Return the index of the selected member, and its forecast."""
        best = self._pick(len(self._kinds), series.account, 0, self._window, self._squared)
        return best, self._one(self._kinds[best], series.row, self._firsts[best], at)
