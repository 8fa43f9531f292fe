"""PathSyncX (Cheng, IV): a timetable whose steps begin when X % of the previous step's hops are over."""

from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import ClassVar

from coalloc.collect.methods.actions import Action
from coalloc.collect.methods.timetable import Timetable
from coalloc.collect.methods.travelling import Trip
from coalloc.errors import UsageError
from coalloc.planner.network import Demand, Network

__all__ = ["PathSync"]


class PathSync(Timetable):
    """A timetable with a barrier after each step.

    A piece whose previous hop ends late continues at once if its step has begun. A piece that failed leaves the
    timetable: no barrier waits for it, and it continues as soon as it can.

    :param percent: X in the paper: share of a step's hops that must be over before the next step begins, 1 to 100
    :param step: seconds; by default about a hundredth of the makespan
    :param unit: bytes that are never split; by default at most 64 KiB
    :param limits: whether the rates of hosts' own network connections count; the paper plans by links only
    :raises UsageError: when some data cannot reach a destination by the known links, or the share is out of range
    """

    name: ClassVar[str] = "path-sync"

    def __init__(
        self,
        network: Network,
        demand: Demand,
        seed: int = 0,
        *,
        percent: int = 95,
        step: float | None = None,
        unit: int | None = None,
        limits: bool = True,
    ) -> None:
        if not 1 <= percent <= 100:
            raise UsageError(f"PathSync cannot wait for {percent} % of the transfers", "give 1 to 100 percent")
        super().__init__(network, demand, seed, step=step, unit=unit, limits=limits)
        self._percent = percent
        self._now = -1
        self._held: defaultdict[int, list[Trip]] = defaultdict(list)
        self._hops: Counter[int] = Counter()
        self._hops_over: Counter[int] = Counter()
        self._strays: set[Trip] = set()
        for trip in self._timed:
            self._held[trip.start].append(trip)
            self._hops.update(range(trip.start, trip.start + len(trip.path) - 1))

    def _begin(self, now: float) -> Iterator[Action]:
        yield from ()

    def _next(self, now: float) -> Iterator[Action]:
        while self._now < self._steps and self._step_over():
            self._now += 1
            for trip in self._held.pop(self._now, ()):
                yield from self._go(trip, now)

    def _step_over(self) -> bool:
        return self._hops_over[self._now] * 100 >= self._hops[self._now] * self._percent

    def _onward(self, trip: Trip, now: float) -> Iterator[Action]:
        self._count(trip)
        step = trip.start + trip.at
        if trip in self._strays or step <= self._now:
            yield from self._go(trip, now)
        else:
            self._held[step].append(trip)

    def _over(self, trip: Trip) -> None:
        self._count(trip)

    def _count(self, trip: Trip) -> None:
        if trip not in self._strays:
            self._hops_over[trip.start + trip.at - 1] += 1

    def _left(self, trip: Trip) -> None:
        if trip not in self._strays:
            self._strays.add(trip)
            self._hops.subtract(range(trip.start + trip.at, trip.start + len(trip.path) - 1))
