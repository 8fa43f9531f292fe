"""The timetable of a collect job (Cheng, III and IV): the least number of steps T, the cheapest flow in G_T, its paths.

Without limits of access, this is the paper's model, in which the destination can receive the sum of all links into it.
With them, the default, a plan respects the limits at which each host can send, receive and store.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING

from coalloc.errors import UsageError
from coalloc.planner.network import Demand, LinkKey, Network
from coalloc.planner.solvers.libraries import needed
from coalloc.planner.timeline.steps import OriginHost, Steps, Units
from coalloc.planner.timeline.timed_paths import TimedPath, timed_paths

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from coalloc.planner.solvers.maxflow import Backend
    from coalloc.planner.timeline.expansion import Expansion, Ints

__all__ = ["Node", "Timeline", "TimetableCertificate", "timeline", "units_for"]

Node = tuple[str, str, str, int]
"""Kind, host or file, ISP, and step of a node of G_T."""
Move = tuple[int, LinkKey]
Hold = tuple[OriginHost, int]
Copy = tuple[str, OriginHost]
PARTS = 32 * 1024
"""Default number of units of all data, as long as a unit has at most `UNIT` bytes."""
UNIT = 64 * 1024
MOST = 2**28
"""Default maximum number of units: with more data, units are larger than `UNIT`, because SciPy's flows have 29 bits."""
STEPS = 100
"""Approximate number of steps of a timetable, unless the length of a step is given."""


@dataclass(frozen=True)
class TimetableCertificate:
    """The proof that a timetable is right, and T is least: flows within all limits, prices, and a cut of G_(T-1).

    `moved` are the units over each link in each step; `held` the units that wait at an origin until a step; `copied`
    the units of a file with several holders that come from each holder.
    """

    steps: int
    moved: Mapping[Move, int]
    held: Mapping[Hold, int]
    copied: Mapping[Copy, int]
    prices: Mapping[Node, int]
    cut: frozenset[Node]


@dataclass(frozen=True, eq=False)
class Timeline:
    """A timetable: the flow of units in each step; `count` is T."""

    steps: Steps
    count: int
    expansion: "Expansion"
    flow: "Ints"
    side: "NDArray[np.bool_]"
    """The nodes of G_(T-1) on the source's side of a cut that is too small."""

    @property
    def makespan(self) -> Fraction:
        """Seconds until the last step is over."""
        return self.count * self.steps.units.seconds

    @cached_property
    def paths(self) -> tuple[TimedPath, ...]:
        """The flow as paths, in the paper's order: the smallest index first."""
        moved, held, copied = self._parts()
        return tuple(timed_paths(self.steps, moved, held, copied))

    def certify(self) -> TimetableCertificate:
        """Return the certificate for an independent checker; this takes longer than the computation of the plan."""
        from coalloc.planner.timeline.expansion import Expansion
        from coalloc.planner.timeline.flows import prices

        costs = prices(self.expansion.graph, self.flow).tolist()
        before = Expansion(self.steps, self.count - 1)
        cut = frozenset(node for node, inside in zip(_nodes(before), self.side.tolist(), strict=True) if inside)
        return TimetableCertificate(
            self.count, *self._parts(), dict(zip(_nodes(self.expansion), costs, strict=True)), cut
        )

    def _parts(self) -> tuple[dict[Move, int], dict[Hold, int], dict[Copy, int]]:
        links = [arc.link for arc in self.expansion.links if arc.link]
        origins, moves = list(self.steps.origins), self.expansion.moves
        waits = self.expansion.waits.T.tolist()
        choices = [(each.file.name, origin) for each in self.steps.copies for origin in each.origins]
        flow = self.flow
        used = flow[:moves].nonzero()[0].tolist()
        moved = {(at // len(links), links[at % len(links)]): int(flow[at]) for at in used}
        held = {
            (origins[number], step): units
            for (number, step), units in zip(waits, flow[moves : moves + len(waits)].tolist(), strict=True)
            if units
        }
        chosen = flow[moves + len(waits) :][: len(choices)].tolist()
        return moved, held, {key: units for key, units in zip(choices, chosen, strict=True) if units}


def _nodes(expansion: "Expansion") -> list[Node]:
    steps = expansion.steps
    nodes: list[Node] = [(*place, step) for step in range(expansion.count + 1) for place in steps.places]
    nodes.append(("everywhere", "", "", 0))
    nodes += [("waiting", origin.host, "", origin.ready) for origin in steps.origins if origin.ready]
    return nodes + [("file", each.file.name, "", 0) for each in steps.copies]


def timeline(
    network: Network,
    demand: Demand,
    units: Units | None = None,
    *,
    limits: bool = True,
    backend: "Backend | None" = None,
) -> Timeline:
    """Return a timetable with the fewest steps and, among these, the least cost.

    :param demand: files with one common destination
    :param units: length of a step and unit of data; chosen for the demand by default
    :param limits: whether the rates of hosts' own network connections limit flows, in addition to links
    :param backend: library that finds flows; by default the fastest that is installed
    :raises UsageError: when some data cannot get to the destination at all, or scipy is not installed
    """
    with needed():
        from coalloc.planner.solvers.maxflow import fastest
        from coalloc.planner.timeline.expansion import Expansion
        from coalloc.planner.timeline.flows import cheapest, cut
        from coalloc.planner.timeline.least_steps import bound

    backend = backend or fastest()
    steps = Steps(network, demand, units or units_for(network, demand, limits=limits), limits)
    count, side = bound(steps, backend)
    while True:
        expansion = Expansion(steps, count)
        short = cut(expansion.graph, backend)
        if short is None:
            return Timeline(steps, count, expansion, cheapest(expansion.graph, backend), side)
        count, side = count + 1, short


def units_for(network: Network, demand: Demand, *, limits: bool = True) -> Units:
    """Choose a step and a unit of data for about a hundred steps, such that no needed link is rounded down to 0 units.

    :raises UsageError: when some data cannot get to the destination at all
    """
    with needed():
        from coalloc.planner.solvers.maxflow import fastest
        from coalloc.planner.timeline.least_steps import bound

    size = max(1, min(UNIT, demand.size // PARTS), demand.size // MOST)
    units = Units(_seconds(network, demand), size)
    while True:
        try:
            count, _ = bound(Steps(network, demand, units, limits), fastest())
        except UsageError:
            # The smallest capacity of a link is a byte per second.
            if units.bytes == 1 and units.seconds >= 1:
                raise
            units = Units(units.seconds if units.bytes > 1 else Fraction(1), max(1, units.bytes // 8))
        else:
            if count <= 2 * STEPS:
                return units
            units = units._replace(seconds=units.seconds * count / STEPS)


def _seconds(network: Network, demand: Demand) -> Fraction:
    """Return a hundredth of the least time in which the destination can receive all data."""
    destinations = {name for file in demand.files for name in file.destinations}
    rate = sum(link.capacity for key, link in network.links.items() if key.sink in destinations)
    downs = [isp.down for name in destinations if name in network.hosts for isp in network.hosts[name].isps]
    limit = sum(down for down in downs if down is not None) if downs and None not in downs else rate
    return Fraction(max(demand.size, 1), max(1, min(rate, limit)) * STEPS)
