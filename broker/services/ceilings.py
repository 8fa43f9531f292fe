"""The most that can be expected of a server or a site: no forecast exceeds what interfaces make possible. Pure.

The time that a source was busy may be measured wrong, by a factor of a thousand, and no forecaster notices where all
transfers of a pair are alike in this. How long a transfer took from begin to end is hard to get wrong, and its bytes
over that are a rate that both interfaces have carried: other transfers over them may be faster, but not by any factor.
"""

from collections import OrderedDict
from collections.abc import Iterable, Mapping
from heapq import nlargest
from typing import NamedTuple

from broker.models.history import INTERFACE, Pair
from broker.storage.history import Kept
from broker.storage.places import Placed
from predictors.experience import SMALLEST
from predictors.observation import Forecast, Rates

__all__ = ["FACTOR", "Ceilings", "bounded", "capacities"]

FACTOR = 10.0
"""How many times as fast as anything that an interface has carried a transfer over it may be expected to be.

A source that gives a tenth of a file is busy for longer than a tenth of the time, and what was the fastest so far may
not have been limited by this interface.
"""
OUTLIERS = (10, 30)
"""Transfers of a reporter from which on the fastest does not count, and from which on the second does not, either."""
HOSTS = 20_000
"""Servers and sites that are remembered; the one of which nothing came for longest goes first."""
VOICES = 7
"""Reporters of each that are remembered: those who have seen it carry most."""
TOP = len(OUTLIERS) + 1


class Carried(NamedTuple):
    """The fastest transfers of a server or a site by one reporter, by rate and number, and how many there were."""

    top: tuple[tuple[float, int], ...]
    transfers: int

    @property
    def rate(self) -> float:
        """Return the rate that it has carried: that of the fastest that is no outlier, where there are enough."""
        rank = sum(self.transfers >= enough for enough in OUTLIERS)
        return self.top[min(rank, len(self.top) - 1)][0]


class Ceilings:
    """Rates that servers and sites have carried, whoever was at the other end.

    The most that any reporter has seen counts: so nobody lowers a forecast by what they report, however much that is.
    """

    def __init__(self) -> None:
        self._carried: OrderedDict[tuple[str, str], dict[str, Carried]] = OrderedDict()

    def learn(self, kept: Kept, counted: bool = True) -> None:
        """Take in a transfer that went well.

        :param counted: False where it may come again: it is then one of the fastest, once, and no one more
        """
        each = kept.observation
        if each.bytes < SMALLEST:
            return
        rate = each.bytes / (each.end - each.start)
        for key in (("source", each.source), ("sink", each.sink)):
            if key[1]:
                voices = self._carried[key] = self._carried.pop(key, {})
                known = voices.get(kept.subject, Carried((), 0))
                top = tuple(nlargest(TOP, {*known.top, (rate, kept.id)}))
                voices[kept.subject] = Carried(top, known.transfers + counted)
                if len(voices) > VOICES:
                    del voices[min(voices, key=lambda voice: voices[voice].rate)]
        while len(self._carried) > HOSTS:
            self._carried.popitem(last=False)

    def of(self, pair: Pair, capacity: float | None = None) -> float:
        """The most that can be expected of a transfer, bytes per second.

        :param capacity: of the source's interface, where that is known; what it has carried shows if it has more
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
        voices = self._carried.get((end, name))
        return max(carried.rate for carried in voices.values()) if voices else None


def capacities(endpoints: Iterable[Placed]) -> Mapping[str, float]:
    """Return the stated capacities of sources; of several at one address the largest."""
    known: dict[str, float] = {}
    for endpoint in (placed.endpoint for placed in endpoints):
        if endpoint.capacity is not None:
            known[endpoint.source] = max(endpoint.capacity, known.get(endpoint.source, 0.0))
    return known


def bounded(forecast: Forecast, most: float) -> Forecast:
    """The forecast with no rate beyond `most`; it says so if one was."""
    if forecast.rates is None or max(forecast.rates) <= most:
        return forecast
    rates = Rates(*(min(rate, most) for rate in forecast.rates))
    reason = f"{forecast.reason}; bounded by what its source and sink can carry"
    return forecast._replace(rates=rates, reason=reason)
