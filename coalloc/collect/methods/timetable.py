"""Trips by a timetable (Cheng, IV): the common part of the paper's coordinated methods."""

from collections import Counter
from dataclasses import replace
from fractions import Fraction

from coalloc.collect.methods.actions import Piece
from coalloc.collect.methods.travelling import Travelling, Trip
from coalloc.planner.network import Demand, Network
from coalloc.planner.timeline.steps import Units
from coalloc.planner.timeline.timed_paths import TimedPath
from coalloc.planner.timeline.timetable import timeline, units_for

__all__ = ["Timetable"]


class Timetable(Travelling):
    """A method whose pieces take the paths of the cheapest flow through the time-expanded graph.

    Each destination has a timetable of its own, which ignores the other destinations' use of links.

    :param step: seconds; by default about a hundredth of the makespan
    :param unit: bytes that are never split; by default at most 64 KiB
    :param limits: whether the rates of hosts' own network connections count; the paper plans by links only
    :raises UsageError: when some data cannot reach a destination by the known links
    """

    def __init__(
        self,
        network: Network,
        demand: Demand,
        seed: int = 0,
        *,
        step: float | None = None,
        unit: int | None = None,
        limits: bool = True,
    ) -> None:
        super().__init__(network, demand, seed)
        self._timed: list[Trip] = []
        destinations = dict.fromkeys(to for file in demand.files for to in file.destinations)
        wanted = [each for each in map(self._wanted_at, destinations) if each.size]
        chosen = [_units(network, each, step, unit, limits) for each in wanted]
        # All timetables share the same units: the longest step and the smallest indivisible amount.
        self._units = Units(
            max((each.seconds for each in chosen), default=Fraction(1)), min((each.bytes for each in chosen), default=1)
        )
        self._steps = 0
        for each in wanted:
            found = timeline(network, each, self._units, limits=limits)
            self._steps = max(self._steps, found.count)
            for path in found.paths:
                self._timed += _trips(path)
        self._timed += [trip for trip in self._direct() if not trip.piece.size]
        self.rationale = self._explain()

    def _wanted_at(self, host: str) -> Demand:
        files = [file for file in self.demand.files if host in file.destinations and host not in file.holders]
        return Demand(tuple(replace(file, destinations=(host,)) for file in files))

    def _explain(self) -> str:
        over: Counter[str] = Counter()
        for trip in self._timed:
            over.update(dict.fromkeys(trip.path[1:-1], trip.piece.size))
        clock = f"{self._steps} steps of {float(self._units.seconds):.3g} s"
        if not over:
            return f"{clock}, all direct: no path over other hosts is faster"
        return f"{clock}, {over.total() / self.demand.size:.0%} of all bytes over {', '.join(sorted(over))}"


def _units(network: Network, demand: Demand, step: float | None, unit: int | None, limits: bool) -> Units:
    if step is not None and unit is not None:
        return Units(Fraction(step), unit)
    found = units_for(network, demand, limits=limits)
    return Units(found.seconds if step is None else Fraction(step), unit or found.bytes)


def _trips(path: TimedPath) -> list[Trip]:
    return [Trip(Piece(*part), path.hosts, path.start) for part in path.parts if len(path.hosts) > 1]
