"""Numbers for monitoring, from the same sums as reports, with a cache."""

import asyncio
import logging
import math
import time
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from broker.models.scores import IN_CHARGE, WEEK, ScoreKey
from broker.storage.accuracy import Accuracy, ScoreSelection
from broker.storage.database import Database
from broker.storage.decisions import DecisionStore
from broker.storage.monitoring import Backlog, DayTotals
from broker.storage.monitoring import MonitoringQueries as Stored
from predictors.tally import Tally

__all__ = ["OTHER", "Monitoring", "MonitoringNumbers", "Totals", "TransferSums"]

log = logging.getLogger(__name__)

DAY = 86_400.0
REMEMBERED = 5.0
"""Seconds for which the numbers are cached."""
SEEN = 15.0
"""Seconds after which a worker that was not seen counts as dead."""
MOST_LINKS = 500
"""Most links with counters of their own, since each adds several time series for the life of the process."""
OTHER = ("other", "other")


Way = tuple[str, str]
"""A source and a sink."""


class TransferSums(NamedTuple):
    """Sums over transfers: their number, the number of failed ones, and their bytes."""

    transfers: int = 0
    failures: int = 0
    bytes: int = 0

    def plus(self, more: "TransferSums") -> "TransferSums":
        """Return these sums plus `more`."""
        return TransferSums(*(a + b for a, b in zip(self, more, strict=True)))


class Totals:
    """Counters by source and sink, which start from 0 at the first reading and never decrease.

    A past day is added permanently. So its later deletion does not change the counters, and an imported log of last
    year does not count as current traffic.
    """

    def __init__(self, today: int) -> None:
        self.since = today - 1
        self._over: dict[Way, TransferSums] | None = None
        self._names: set[Way] = set()

    def add(self, moved: Iterable[DayTotals], today: int) -> Mapping[Way, TransferSums]:
        """Update the counters, and return them.

        :param moved: all transfers of the days since `since`
        :param today: number of the current day
        """
        ended, lasting = dict[Way, TransferSums](), dict[Way, TransferSums]()
        for each in moved:
            days, name = ended if each.day < today - 1 else lasting, self._named(each.source, each.sink)
            days[name] = days.get(name, TransferSums()).plus(TransferSums(*each[3:]))
        self.since = max(self.since, today - 1)
        if self._over is None:  # first reading: subtract all earlier transfers
            self._over = {
                name: TransferSums(*(-count for count in sums)) for name, sums in _sum(ended, lasting).items()
            }
        self._over = _sum(self._over, ended)
        return _sum(self._over, lasting)

    def _named(self, source: str, sink: str) -> Way:
        """Return the name under which a link is counted: `OTHER` for new links above the limit."""
        name = (source, sink)
        if name not in self._names and len(self._names) >= MOST_LINKS:
            return OTHER
        self._names.add(name)
        return name


def _sum(some: Mapping[Way, TransferSums], more: Mapping[Way, TransferSums]) -> dict[Way, TransferSums]:
    return {name: some.get(name, TransferSums()).plus(more.get(name, TransferSums())) for name in (*some, *more)}


class LostSeconds:
    """A counter of lost seconds since the first reading, which never decreases.

    :param week: current week; decisions since the week before it count
    """

    def __init__(self, week: int) -> None:
        self.since = week - 1
        self._first: float | None = None
        self._most = 0.0

    def add(self, seconds: Iterable[float]) -> float:
        """Update the counter, and return it.

        :param seconds: lost seconds of all decisions of the weeks since `since`
        """
        now = math.fsum(seconds)
        self._first = now if self._first is None else self._first
        self._most = max(self._most, now - self._first)
        return self._most


class MonitoringNumbers(NamedTuple):
    """The numbers for monitoring.

    :param tasks: numbers of active, queued and paused tasks
    :param errors: errors of forecasts in this week and the week before, by size class
    :param lost: seconds by which downloads took longer than with the best shares
    """

    totals: Mapping[Way, TransferSums]
    tasks: Mapping[str, int]
    workers: int
    waiting: Backlog
    errors: Mapping[int, Tally]
    lost: float


class Monitoring:
    """A reader of the numbers, with a cache."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._totals = Totals(int(time.time() // DAY))
        self._lost = LostSeconds(int(time.time() // WEEK))
        self._measured: MonitoringNumbers | None = None
        self._until = 0.0
        self._looking = asyncio.Lock()

    async def measured(self) -> MonitoringNumbers | None:
        """Return the numbers, at most `REMEMBERED` seconds old; None if they cannot be read."""
        async with self._looking:
            if time.monotonic() >= self._until:
                try:
                    self._measured = await self._look(time.time())
                except Exception:
                    log.exception("failed to read the metrics; trying again")
                    self._measured = None
                self._until = time.monotonic() + REMEMBERED
        return self._measured

    async def _look(self, now: float) -> MonitoringNumbers:
        async with self._database.read() as connection:
            stored = Stored(connection)
            moved = await stored.moved(self._totals.since)
            tasks = {"active": 0, "queued": 0, "paused": 0, **await stored.tasks()}
            workers, waiting = await stored.workers(SEEN), await stored.waiting()
            errors = await Accuracy(connection).sums(ScoreSelection(since=(now // WEEK - 1) * WEEK))
            decided = await DecisionStore(connection).summed(None, self._lost.since)
        lost = self._lost.add(each.seconds - each.best_seconds for each in decided if not each.source)
        return MonitoringNumbers(
            self._totals.add(moved, int(now // DAY)), tasks, workers, waiting, _erring(errors), lost
        )


def _erring(sums: Iterable[tuple[ScoreKey, Tally]]) -> dict[int, Tally]:
    """Return the errors of the forecasters in charge, by size class."""
    found: dict[int, list[Tally]] = {}
    for key, tally in sums:
        if key.forecaster == IN_CHARGE:
            found.setdefault(key.size_class, []).append(tally)
    return {size: Tally.total(tallies) for size, tallies in sorted(found.items())}
