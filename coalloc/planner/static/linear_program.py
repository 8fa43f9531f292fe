"""Plans by linear programs, whose rates in floats become paths in whole bytes with an exact makespan."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from fractions import Fraction
from functools import cached_property

import numpy as np

from coalloc.errors import UsageError
from coalloc.planner.capacity_graph import CapacityGraph, Mask
from coalloc.planner.demands import checked, resting, wanted
from coalloc.planner.from_graph import flows_of, origins_of
from coalloc.planner.limits import PlanLimits, reason
from coalloc.planner.network import Demand, LinkKey, Network
from coalloc.planner.paths import FlowLeft, path_for_little, paths_of, without_cycles
from coalloc.planner.results import Certificate, PlannedPath, TransferPlan
from coalloc.planner.solvers.linear import Floats, LinearOptimum, largest_theta
from coalloc.planner.solvers.maxflow import MaximumFlow, fastest
from coalloc.planner.uncertainty import NO_CAUTION, NO_RELAYS, Caution, lowered

__all__ = ["LinearSolver"]

TOLERANCE = Fraction(1, 10**6)
"""Relative tolerance of the makespan; HiGHS satisfies each constraint within 1e-7."""
PARTS = 2**40
"""Number of parts of a byte; flows are counted in such parts."""


class LinearSolver:
    """A question for linear programs, to be answered with several degrees of caution.

    :raises UsageError: when the demand does not fit the network
    """

    def __init__(self, network: Network, demand: Demand) -> None:
        checked(network, demand)
        self._network, self._demand = network, demand

    def plan(self, caution: Caution = NO_CAUTION) -> TransferPlan:
        """Return the plan of least makespan with lowered capacities, or without relays.

        It is within a millionth of the bound in its certificate. It is compared with the plan without relays
        (`TransferPlan.direct`) only for the stated capacities.

        :raises UsageError: when some data cannot reach a destination, at all or within the budget
        """
        network, demand = self._network, self._demand
        rest = tuple(resting(network, demand))
        if not any(wanted(demand, sink) for file in demand.files for sink in file.destinations):
            empty = Certificate({}, {})
            return TransferPlan("direct", Fraction(0), Fraction(0), {}, rest, "nothing has to be sent", empty)
        best = self._direct if caution == NO_RELAYS else _optimum(lowered(network, demand, caution), demand)
        if best is None:
            remedy = "add links, or leave out files" + ", or raise the budget" * (demand.budget is not None)
            raise UsageError("not everything can reach its destination", remedy)
        direct = self._direct if caution in (NO_CAUTION, NO_RELAYS) else None
        seconds = direct.makespan if direct else None
        # Do not use relays without a gain.
        use = direct if direct and direct.makespan <= best.makespan * (1 + TOLERANCE / 1000) else best
        return TransferPlan(
            "direct" if use is direct else "linear program",
            use.makespan,
            seconds,
            use.flows,
            (*rest, *use.paths),
            reason(network, best.prices, use.makespan, seconds),
            Certificate(best.prices, use.origins, TOLERANCE),
        )

    @cached_property
    def _direct(self) -> "_Plan | None":
        """The best plan without relays, if there is one."""
        return _optimum(self._network, self._demand, direct=True)


def _optimum(network: Network, demand: Demand, direct: bool = False) -> "_Plan | None":
    found = largest_theta(network, demand, direct)
    if found is None:
        return None
    try:
        plan = _Plan(network, demand, found)
        if plan.makespan <= found.seconds * (1 + TOLERANCE * 9 / 10):
            return plan
        return min(plan, _Plan(network, demand, found, wide=True), key=lambda each: each.makespan)
    except _NoPathError:
        return None


class _NoPathError(Exception):
    """A file has no path with any capacity, which HiGHS did not notice, as the file is so small."""


class _Plan:
    """The paths, flows and makespan for an optimum of rates."""

    def __init__(self, network: Network, demand: Demand, rates: LinearOptimum, wide: bool = False) -> None:
        self.prices = rates.prices
        self.paths: list[PlannedPath] = []
        self.flows: dict[LinkKey, Fraction] = defaultdict(Fraction)
        self.origins: dict[tuple[str, str], Fraction] = defaultdict(Fraction)
        for sink, graph in rates.graphs.items():
            files, flow = wanted(demand, sink), exact(graph, rates.bytes[sink], _usable(network, graph), wide)
            self.paths += paths_of(graph, flow, files, fastest())
            for key, size in flows_of(graph, flow).items():
                self.flows[key] += size
            for origin, size in origins_of(graph, flow, files).items():
                self.origins[origin] += size
        self.makespan = PlanLimits(network, None).seconds(self.flows)


def _usable(network: Network, graph: CapacityGraph) -> Mask:
    """Return whether each arc has any capacity: HiGHS may leave tiny flows over those that have none."""
    usable: Mask = graph.slopes > 0
    usable[[arc for arc, offset in graph.offsets.items() if offset > 0]] = True
    closed = {key for each in network.shared if not each.capacity for key, weight in each.weights.items() if weight}
    if closed:
        usable[: len(graph.links)] &= [key not in closed for key in graph.arrays.keys(graph.links)]
    return usable


def exact(graph: CapacityGraph, found: Floats, usable: Mask, wide: bool) -> MaximumFlow:
    """Return an exact flow in parts of bytes, from a flow in floats that is only nearly conserved.

    The flow is split into paths. A file's missing or surplus bytes are assigned to its path with the largest flow, or
    to the shortest or widest path if the file is so small that no flow of it is left.
    """
    parts = {arc: int(size * PARTS) for arc, size in enumerate((found * usable).tolist()) if size > 0}
    left = FlowLeft(graph, without_cycles(graph, parts))
    entries = {int(graph.heads[arc]): arc for arc in np.flatnonzero(graph.tails == graph.source).tolist()}
    amounts: Counter[int] = Counter()
    for entry, arcs in _entered(graph, entries).items():
        lacking = amounts[entry] = graph.offsets[entry] * graph.unit * PARTS // 2
        paths = [path for arc in arcs for path in _paths(left, arc)]
        if not paths:
            only = path_for_little(graph, arcs, usable, wide)
            if only is None:
                raise _NoPathError
            paths = [(0, only)]
        lacking -= sum(most for most, _ in paths)
        _, thickest = max(paths)
        for size, path in (*paths, (lacking, thickest)):
            amounts.update({arc: size for arc in path if arc != entry})
    return MaximumFlow(graph.unit * PARTS // 2, without_cycles(graph, +amounts))


def _entered(graph: CapacityGraph, entries: Mapping[int, int]) -> dict[int, list[int]]:
    """Return, for each arc by which files leave the source, the arcs by which they enter their holders."""
    found: dict[int, list[int]] = {}
    for arc in graph.groups:
        found.setdefault(arc if graph.tails[arc] == graph.source else entries[int(graph.tails[arc])], []).append(arc)
    return found


def _paths(left: FlowLeft, arc: int) -> Iterator[tuple[int, list[int]]]:
    while left.amounts.get(arc):
        path, most = left.take(arc)
        if not most:
            return
        yield most, path
