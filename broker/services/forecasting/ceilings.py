"""Ceilings of forecasts by server and site: no forecast exceeds what their interfaces make possible. Pure.

A source's busy time may be reported wrong by a factor of a thousand, and no forecaster notices if all transfers of a
link are wrong in the same way. The time of a transfer from begin to end is hard to report wrong. Its bytes divided by
that time are a rate that both interfaces have carried: other transfers may be faster, but only by a limited factor.
"""

from collections import OrderedDict
from collections.abc import Iterable, Mapping
from heapq import nlargest
from typing import NamedTuple

from broker.models.history import INTERFACE, Pair
from broker.storage.history import StoredObservation
from broker.storage.places import Placed
from predictors.experience import SMALLEST
from predictors.observation import Forecast, Rates

__all__ = ["FACTOR", "Ceilings", "bounded", "capacities"]

FACTOR = 10.0
"""Highest ratio of a forecast to the highest rate that an interface has carried.

A source that delivers a tenth of a file is busy for longer than a tenth of the time, and the fastest transfer so far
may not have been limited by this interface.
"""
OUTLIERS = (10, 30)
"""Transfers of a reporter from which on the fastest is ignored as an outlier, and from which on the second one, too."""
HOSTS = 20_000
"""Most servers and sites in memory; the one without news for longest is dropped first."""
SUBJECTS = 7
"""Most reporters in memory for each server or site: those that report the highest rates."""
TOP = len(OUTLIERS) + 1


class FastestTransfers(NamedTuple):
    """The fastest transfers of a server or a site by one reporter, as rates and numbers, and the count of all."""

    top: tuple[tuple[float, int], ...]
    transfers: int

    @property
    def rate(self) -> float:
        """The carried rate: that of the fastest transfer that is not an outlier, if there are enough transfers."""
        rank = sum(self.transfers >= enough for enough in OUTLIERS)
        return self.top[min(rank, len(self.top) - 1)][0]


class Ceilings:
    """The rates that servers and sites have carried, whatever was at the other end.

    The highest rate of any reporter counts, so that no reporter can lower a forecast, however much it reports.
    """

    def __init__(self) -> None:
        self._carried: OrderedDict[tuple[str, str], dict[str, FastestTransfers]] = OrderedDict()

    def learn(self, stored: StoredObservation, counted: bool = True) -> None:
        """Take in a transfer that succeeded.

        :param counted: whether it adds to the number of transfers; False if it may be taken in again
        """
        each = stored.observation
        if each.bytes < SMALLEST:
            return
        rate = each.bytes / (each.end - each.start)
        for key in (("source", each.source), ("sink", each.sink)):
            if key[1]:
                by_subject = self._carried[key] = self._carried.pop(key, {})
                known = by_subject.get(stored.subject, FastestTransfers((), 0))
                top = tuple(nlargest(TOP, {*known.top, (rate, stored.id)}))
                by_subject[stored.subject] = FastestTransfers(top, known.transfers + counted)
                if len(by_subject) > SUBJECTS:
                    del by_subject[min(by_subject, key=lambda subject: by_subject[subject].rate)]
        while len(self._carried) > HOSTS:
            self._carried.popitem(last=False)

    def of(self, pair: Pair, capacity: float | None = None) -> float:
        """Return the highest rate that a forecast for this link may have, in bytes per second.

        :param capacity: stated capacity of the source's interface, if known; a higher rate that it has carried wins
        """
        source, sink = self._rate("source", pair.source), self._rate("sink", pair.sink)
        known = [INTERFACE]
        if capacity is not None:
            known.append(max(capacity, source or 0.0))
        elif source is not None:
            known.append(FACTOR * source)
        if sink is not None:
            known.append(FACTOR * sink)
        return min(known)

    def _rate(self, end: str, name: str) -> float | None:
        by_subject = self._carried.get((end, name))
        return max(carried.rate for carried in by_subject.values()) if by_subject else None


def capacities(endpoints: Iterable[Placed]) -> Mapping[str, float]:
    """Return the stated capacities of sources, bytes per second; of several endpoints at one address, the largest."""
    known: dict[str, float] = {}
    for endpoint in (placed.endpoint for placed in endpoints):
        if endpoint.capacity is not None:
            known[endpoint.source] = max(endpoint.capacity, known.get(endpoint.source, 0.0))
    return known


def bounded(forecast: Forecast, most: float) -> Forecast:
    """Return the forecast with all rates limited to `most`; its reason says so if any rate exceeded it."""
    if forecast.rates is None or max(forecast.rates) <= most:
        return forecast
    rates = Rates(*(min(rate, most) for rate in forecast.rates))
    reason = f"{forecast.reason}; limited to the capacity of its source and sink"
    return forecast._replace(rates=rates, reason=reason)
