"""Upper limits of forecasts, from the rates that servers and sites have achieved.

A reporter may state a source's busy time wrongly by a factor of a thousand, and no forecaster notices if all transfers
of a link are wrong in the same way. The time from start to end is rarely wrong. Bytes divided by that time are a rate
that the interfaces of both ends have carried; other transfers may be faster only by a limited factor.
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

It allows for sources that were busy for only a part of the time, and for interfaces that were not the bottleneck.
"""
OUTLIERS = (10, 30)
"""Numbers of a reporter's transfers from which the fastest, and the two fastest, are ignored as outliers."""
HOSTS = 20_000
"""Most servers and sites in memory; the least recently updated is dropped first."""
SUBJECTS = 7
"""Most reporters in memory for each server or site: those with the highest rates."""
TOP = len(OUTLIERS) + 1


class FastestTransfers(NamedTuple):
    """One reporter's fastest transfers of a server or site.

    :param top: rate (bytes per second) and observation id of each, the fastest first
    :param transfers: number of all transfers
    """

    top: tuple[tuple[float, int], ...]
    transfers: int

    @property
    def rate(self) -> float:
        """The rate of the fastest transfer that is no outlier, in bytes per second."""
        rank = sum(self.transfers >= enough for enough in OUTLIERS)
        return self.top[min(rank, len(self.top) - 1)][0]


class Ceilings:
    """The highest rates that servers and sites have carried.

    The highest rate of any reporter counts, so that no reporter can lower another's forecasts.
    """

    def __init__(self) -> None:
        self._carried: OrderedDict[tuple[str, str], dict[str, FastestTransfers]] = OrderedDict()

    def learn(self, stored: StoredObservation, counted: bool = True) -> None:
        """Learn from a successful transfer.

        :param counted: whether to count it; False if it may be learned again
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

        :param capacity: stated capacity of the source's interface, if known; a higher carried rate replaces it
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
    """Return the stated capacities of sources in bytes per second; for endpoints with one address, the largest."""
    known: dict[str, float] = {}
    for endpoint in (placed.endpoint for placed in endpoints):
        if endpoint.capacity is not None:
            known[endpoint.source] = max(endpoint.capacity, known.get(endpoint.source, 0.0))
    return known


def bounded(forecast: Forecast, most: float) -> Forecast:
    """Return the forecast with all rates limited to `most`, and with a note in its reason if this changes a rate."""
    if forecast.rates is None or max(forecast.rates) <= most:
        return forecast
    rates = Rates(*(min(rate, most) for rate in forecast.rates))
    reason = f"{forecast.reason}; limited to the capacity of its source and sink"
    return forecast._replace(rates=rates, reason=reason)
