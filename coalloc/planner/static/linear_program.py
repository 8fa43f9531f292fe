"""Plans by linear programs, whose rates in floats become paths in whole bytes with an exact makespan."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from fractions import Fraction
from functools import cached_property

import numpy as np

from coalloc.errors import UsageError
from coalloc.planner.capacity_graph import CapacityGraph
from coalloc.planner.demands import checked, resting, wanted
from coalloc.planner.from_graph import flows_of, origins_of
from coalloc.planner.limits import PlanLimits, reason
from coalloc.planner.network import Demand, LinkKey, Network
from coalloc.planner.paths import Amounts, leaving_arcs, paths_of, shortest, take, without_cycles
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
    return _Plan(network, demand, found) if found else None


class _Plan:
    """The paths, flows and makespan for an optimum of rates."""

    def __init__(self, network: Network, demand: Demand, rates: LinearOptimum) -> None:
        self.prices = rates.prices
        self.paths: list[PlannedPath] = []
        self.flows: dict[LinkKey, Fraction] = defaultdict(Fraction)
        self.origins: dict[tuple[str, str], Fraction] = defaultdict(Fraction)
        for sink, graph in rates.graphs.items():
            files, flow = wanted(demand, sink), exact(graph, rates.bytes[sink])
            self.paths += paths_of(graph, flow, files, fastest())
            for key, size in flows_of(graph, flow).items():
                self.flows[key] += size
            for origin, size in origins_of(graph, flow, files).items():
                self.origins[origin] += size
        self.makespan = PlanLimits(network, None).seconds(self.flows)


def exact(graph: CapacityGraph, found: Floats) -> MaximumFlow:
    """Return an exact flow in parts of bytes, from a flow in floats that is only nearly conserved.

    The flow is split into paths. A file's missing or surplus bytes are assigned to its path with the largest flow, or
    to the shortest path if the file is so small that no flow of it is left.
    """
    left = without_cycles(graph, {arc: int(size * PARTS) for arc, size in enumerate(found.tolist()) if size > 0})
    leaving = leaving_arcs(graph, left)
    entries = {int(graph.heads[arc]): arc for arc in np.flatnonzero(graph.tails == graph.source).tolist()}
    amounts: Counter[int] = Counter()
    for entry, arcs in _entered(graph, entries).items():
        lacking = amounts[entry] = graph.offsets[entry] * graph.unit * PARTS // 2
        paths = [path for arc in arcs for path in _paths(graph, arc, left, leaving)] or [(0, shortest(graph, arcs))]
        lacking -= sum(most for most, _ in paths)
        _, thickest = max(paths)
        for size, path in (*paths, (lacking, thickest)):
            amounts.update({arc: size for arc in path if arc != entry})
    return MaximumFlow(graph.unit * PARTS // 2, dict(+amounts))


def _entered(graph: CapacityGraph, entries: Mapping[int, int]) -> dict[int, list[int]]:
    """Return, for each arc by which files leave the source, the arcs by which they enter their holders."""
    found: dict[int, list[int]] = {}
    for arc in graph.groups:
        found.setdefault(arc if graph.tails[arc] == graph.source else entries[int(graph.tails[arc])], []).append(arc)
    return found


def _paths(
    graph: CapacityGraph, arc: int, left: Amounts, leaving: Mapping[int, list[int]]
) -> Iterator[tuple[int, list[int]]]:
    while left.get(arc):
        path, most = take(graph, arc, left, leaving)
        if not most:
            return
        yield most, path
