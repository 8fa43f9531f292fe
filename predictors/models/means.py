"""Means of what a source achieved before. So far one: the moving average over time of the co-allocation paper."""

from bisect import bisect_left, bisect_right, insort
from collections import defaultdict
from collections.abc import Sequence
from math import fsum, inf
from operator import itemgetter

from predictors.base import Forecaster
from predictors.observation import Forecast, Observation, Query

__all__ = ["MovingAverage"]

HOUR = 3600.0
DAY = 24 * HOUR

Sample = tuple[float, float]
"""When it ended, and the value."""


class MovingAverage(Forecaster):
    """The mean of the rates of the transfers that ended within a window of time before the query.

    Source: Vazhkudai, "Enabling the Co-Allocation of Grid Data Transfers" (2003), forecasts B_i with a
    "temporal variation of univariate, average predictor (moving average over time)" from Vazhkudai, Schopf and
    Foster, "Predicting the Performance of Wide Area Data Transfers" (2002). They average the rates of single
    transfers, each counting the same, over the last 5, 15 or 25 hours, or 5 or 10 days.

    The narrowest window that holds a transfer is used. The first is 25 hours, the shortest of theirs that holds
    a whole day, so that a mean does not depend on the hour at which it is asked. The others are for users who
    transfer less often: 10 days, then all that is known. Rates are averaged over transfers of at least
    `smallest` bytes: below that a transfer ends in TCP's slow start, and tells how far the server is, not how
    fast. Set-up times are averaged over transfers of any size.

    :param windows: lengths in seconds, narrowest first
    :param smallest: bytes that a transfer needs for its rate to count

    >>> average = MovingAverage()
    >>> average.learn(Observation("ftp://a", start=0, end=10, bytes=100_000_000, busy_seconds=10))
    >>> average.learn(Observation("ftp://a", start=60, end=70, bytes=300_000_000, busy_seconds=10))
    >>> forecast = average.forecast(Query("ftp://a", at=3670))
    >>> forecast.rate, forecast.reason
    (20000000.0, 'the mean of 2 transfers in the last 25 hours, the newest 60 minutes ago')
    """

    name = "moving average"

    def __init__(self, windows: Sequence[float] = (25 * HOUR, 10 * DAY), smallest: int = 1024 * 1024) -> None:
        self._windows = (*windows, inf)
        self._smallest = smallest
        self._rates: dict[str, list[Sample]] = defaultdict(list)
        self._setups: dict[str, list[Sample]] = defaultdict(list)

    def learn(self, observation: Observation) -> None:
        rate = observation.rate
        if rate and observation.bytes >= self._smallest:
            insort(self._rates[observation.source], (observation.end, rate))
        if observation.setup_seconds is not None:
            insort(self._setups[observation.source], (observation.end, observation.setup_seconds))

    def forecast(self, query: Query) -> Forecast:
        _, setups = self._recent(self._setups.get(query.source, []), query.at)
        setup = _mean(setups) if setups else None
        window, rates = self._recent(self._rates.get(query.source, []), query.at)
        if not rates:
            return Forecast(self.name, None, setup, 0, None, "no earlier transfer from there tells its rate")
        age = query.at - rates[-1][0]
        count = f"{len(rates)} transfers" if len(rates) > 1 else "one transfer"
        reason = f"the mean of {count} {_within(window)}, the newest {_duration(age)} ago"
        return Forecast(self.name, _mean(rates), setup, len(rates), age, reason)

    def _recent(self, samples: list[Sample], at: float) -> tuple[float, list[Sample]]:
        """The narrowest window that holds samples, and these samples."""
        last = bisect_right(samples, at, key=itemgetter(0))
        for window in self._windows:
            first = bisect_left(samples, at - window, hi=last, key=itemgetter(0))
            if first < last:
                return window, samples[first:last]
        return self._windows[-1], []


def _mean(samples: Sequence[Sample]) -> float:
    return fsum(value for _, value in samples) / len(samples)


def _within(window: float) -> str:
    return "ever" if window == inf else f"in the last {_duration(window)}"


def _duration(seconds: float) -> str:
    """A duration in the unit that leaves a small whole number.

    >>> _duration(90), _duration(25 * HOUR), _duration(10 * DAY)
    ('90 seconds', '25 hours', '10 days')
    """
    for unit, name in ((DAY, "days"), (HOUR, "hours"), (60.0, "minutes")):
        if seconds >= 2 * unit:
            return f"{seconds / unit:.0f} {name}"
    return f"{seconds:.0f} seconds"
