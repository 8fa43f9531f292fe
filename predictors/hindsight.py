"""What several forecasters would have said when each transfer of a path began, from those that had ended by then.

What they say is a function of the transfers that had ended, and of nothing else: not of what came later, nor of the
order in which transfers became known. So that it need not be learned from the beginning each time, they begin anew
after each `BLOCK` of transfers, from the newest `WARM` before: a broker that is started anew does the same.
"""

from bisect import bisect_right
from collections.abc import Collection, Iterator, Mapping, Sequence
from math import inf, isfinite
from typing import Any, NamedTuple

from predictors.base import Forecaster
from predictors.experience import telling
from predictors.observation import Forecast, Observation, query_of
from predictors.registry import make

__all__ = ["BLOCK", "PANEL", "WARM", "Panel", "Said", "affected", "order"]

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
"""Those that are compared: one or two that stand for each family, and the one that hears them."""
BLOCK = 1000
"""Transfers after which forecasters begin anew."""
WARM = 300
"""Transfers before these that they begin with."""


class Said(NamedTuple):
    """What was to be said of a transfer, by those who knew anything.

    :param number: which of the transfers
    """

    number: int
    forecasts: Mapping[str, Forecast]


def order(observation: Observation) -> tuple[Any, ...]:
    """What transfers of a path are sorted by: when they ended, and what tells those apart that ended at once."""
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
    """Of the newest transfers those of which something is to be said for the first time, or again.

    Those that began before the earliest new one had ended stay as they are: nothing that they could know has changed.
    Left out are those that began so long before they ended that what was known then is not among these transfers.

    :param known: of one path, in their `order`
    :param rank: how many there were before the first of these
    :param fresh: places of those that are new
    :param earliest: when the first of all that are new ended
    :param most: newest transfers that are looked at
    """
    ends = [each.end for each in known]
    for i in range(max(0, len(known) - most), len(known)):
        if (i in fresh or known[i].start >= earliest) and telling(known[i]):
            anchor = _anchor(rank, bisect_right(ends, known[i].start))
            if not rank or anchor >= WARM:
                yield i


class Panel:
    """Forecasters that walk forward through the transfers of one path.

    Asked again when more transfers have ended, they go on from where they were, if they still know the right ones.

    :param fast: compiled
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
        """When the last ended that they know: one that ended before and is new would have come too late for them."""
        return self._last.end if self._last else -inf

    def hindsight(self, known: Sequence[Observation], rank: int, wanted: Collection[int]) -> Iterator[Said | None]:
        """What is to be said of each that is wanted, in the order of their starts; None after each step between.

        :param known: transfers of one path, in their `order`
        :param rank: how many there were before the first of these
        :param wanted: places of `affected` ones
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
            yield Said(i, dict(_said(self._forecasters, known[i])))

    def _goes_on(self, known: Sequence[Observation], place: int, ended: int) -> bool:
        """Whether what they know ends just before this place."""
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
    """The place at which those that know so many transfers began anew; negative before the first of them."""
    return (rank + ended) // BLOCK * BLOCK - rank


def _said(panel: Sequence[Forecaster], observation: Observation) -> Iterator[tuple[str, Forecast]]:
    query = query_of(observation)
    for forecaster in panel:
        forecast = forecaster.forecast(query)
        if forecast.rates and all(isfinite(rate) and rate > 0 for rate in forecast.rates):
            yield forecaster.name, forecast
