"""Forecasts in hindsight: the forecasts that several forecasters would have made at the start of each transfer.

A forecast depends only on the transfers of the path that had ended by then, and not on the order in which they became
known. To avoid learning from the beginning each time, forecasters restart after each `BLOCK` of transfers and first
learn the `WARM` transfers before it; a restarted broker does the same.
"""

from bisect import bisect_right
from collections.abc import Collection, Iterator, Mapping, Sequence
from math import inf, isfinite
from typing import Any, NamedTuple

from predictors.base import Forecaster
from predictors.experience import telling
from predictors.observation import Forecast, Observation, query_of
from predictors.registry import make

__all__ = ["BLOCK", "PANEL", "WARM", "GivenForecasts", "Panel", "affected", "order"]

PANEL = (
    "last",
    "running mean",
    "mean of 25",
    "median of 25",
    "smoothing 0.20",
    "AR(5)",
    "kernel",
    "hierarchy",
    "hedge",
)
"""Forecasters that are compared: one or two for each family, and the hedge, which combines others."""
BLOCK = 1000
"""Transfers after which forecasters restart."""
WARM = 300
"""Number of earlier transfers that forecasters learn at a restart."""


class GivenForecasts(NamedTuple):
    """The forecasts for one transfer, by forecaster, without those that made none.

    :param number: index of the transfer
    """

    number: int
    forecasts: Mapping[str, Forecast]


def order(observation: Observation) -> tuple[Any, ...]:
    """Return the sort key of a path's transfers: their end, and further fields to order those that ended at once."""
    return (
        observation.end,
        observation.start,
        observation.bytes,
        observation.busy_seconds or 0.0,
        observation.setup_seconds or 0.0,
        observation.file_class,
        observation.concurrency,
        observation.streams,
        observation.ranges,
    )


def affected(
    known: Sequence[Observation], rank: int, fresh: Collection[int], earliest: float, most: int
) -> Iterator[int]:
    """Yield the indices of the newest transfers that need a first or a new forecast.

    Transfers that began before the end of the earliest new one keep their forecasts, because nothing known at their
    start has changed. Transfers are skipped if `known` does not reach back to what they are forecast from.

    :param known: transfers of one path, in their `order`
    :param rank: number of transfers of the path before the first of `known`
    :param fresh: indices of the new transfers
    :param earliest: earliest end of all new transfers
    :param most: number of newest transfers to consider
    """
    ends = [each.end for each in known]
    for i in range(max(0, len(known) - most), len(known)):
        if (i in fresh or known[i].start >= earliest) and telling(known[i]):
            anchor = _anchor(rank, bisect_right(ends, known[i].start))
            if not rank or anchor >= WARM:
                yield i


class Panel:
    """Forecasters that walk forward through the transfers of one path.

    A later call, after more transfers have ended, continues from the last state if that state is still valid.

    :param fast: whether to run compiled code
    """

    def __init__(self, fast: bool, names: Sequence[str] = PANEL) -> None:
        self._fast = fast
        self._names = names
        self._forecasters: list[Forecaster] = []
        self._begun: int | None = None
        self._rank = 0
        self._last: Observation | None = None

    @property
    def until(self) -> float:
        """End of the last learned transfer: a new transfer that ended earlier came too late for these forecasters."""
        return self._last.end if self._last else -inf

    def hindsight(
        self, known: Sequence[Observation], rank: int, wanted: Collection[int]
    ) -> Iterator[GivenForecasts | None]:
        """Yield the forecasts for each wanted transfer, in the order of their starts; also None per learned transfer.

        :param known: transfers of one path, in their `order`
        :param rank: number of transfers of the path before the first of `known`
        :param wanted: indices of transfers, from `affected`
        """
        ends = [each.end for each in known]
        for i in sorted(wanted, key=lambda each: known[each].start):
            ended = bisect_right(ends, known[i].start)
            begun = rank + _anchor(rank, ended)
            if begun != self._begun or not self._goes_on(known, self._rank - rank, ended):
                self._begin(begun)
            for each in known[self._rank - rank : ended]:
                self._learn(each)
                yield None
            yield GivenForecasts(i, dict(_forecasts(self._forecasters, known[i])))

    def _goes_on(self, known: Sequence[Observation], place: int, ended: int) -> bool:
        """Return whether learning can go on at `place`: the last learned transfer is just before, or there is none."""
        if self._last is None:
            return True
        return 0 < place <= ended and known[place - 1] == self._last

    def _begin(self, begun: int) -> None:
        self._forecasters = [make(name, self._fast) for name in self._names]
        self._begun, self._rank, self._last = begun, max(0, begun - WARM), None

    def _learn(self, observation: Observation) -> None:
        for forecaster in self._forecasters:
            forecaster.learn(observation)
        self._rank, self._last = self._rank + 1, observation


def _anchor(rank: int, ended: int) -> int:
    """Return the index of the last restart, after `ended` transfers of `known`; negative if it was before `known`."""
    return (rank + ended) // BLOCK * BLOCK - rank


def _forecasts(panel: Sequence[Forecaster], observation: Observation) -> Iterator[tuple[str, Forecast]]:
    query = query_of(observation)
    for forecaster in panel:
        forecast = forecaster.forecast(query)
        if forecast.rates and all(isfinite(rate) and rate > 0 for rate in forecast.rates):
            yield forecaster.name, forecast
