"""Plans by linear programs, whose rates in floats become paths in whole bytes with an exact makespan."""

from collections import defaultdict
from fractions import Fraction
from functools import cached_property

from coalloc.errors import UsageError
from coalloc.planner.certificate import PRECISE
from coalloc.planner.demands import checked, resting, wanted
from coalloc.planner.from_graph import flows_of, origins_of
from coalloc.planner.limits import BUDGET, PlanLimits, reason
from coalloc.planner.network import Demand, LinkKey, Network
from coalloc.planner.paths import paths_of
from coalloc.planner.results import Certificate, PlannedPath, TransferPlan
from coalloc.planner.solvers.linear import LinearOptimum, largest_theta
from coalloc.planner.solvers.maxflow import fastest
from coalloc.planner.static.exact_flows import NoPathError, Placing, exact_flows
from coalloc.planner.uncertainty import NO_CAUTION, NO_RELAYS, Caution, lowered

__all__ = ["LinearSolver"]

TOLERANCE = Fraction(1, 10**6)
"""Relative tolerance of the makespan; HiGHS satisfies each constraint within 1e-7."""
PLACINGS: tuple[Placing, ...] = ("short", "wide")
"""How lost bytes are placed, the simplest first; the next is tried if the plan misses the tolerance or the budget."""


class LinearSolver:
    """A question for linear programs, to be answered with several degrees of caution.

    :raises UsageError: when the demand does not fit the network
    """

    def __init__(self, network: Network, demand: Demand) -> None:
        checked(network, demand)
        self._network, self._demand = network, demand

    def plan(self, caution: Caution = NO_CAUTION) -> TransferPlan:
        """Return the plan of least makespan with lowered capacities, or without relays.

        It is within a millionth of the bound in its certificate, except for a few networks with files that are tiny
        beside others: the checker of certificates reports these. It is compared with the plan without relays
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
    """Return the fastest of several plans for an optimum of rates that keep the budget; None if there is none."""
    found = largest_theta(network, demand, direct)
    if found is None:
        return None
    best: _Plan | None = None
    for placing in PLACINGS:
        try:
            plan = _Plan(network, demand, found, placing)
        except NoPathError:
            return None
        if plan.keeps_budget and (best is None or plan.makespan < best.makespan):
            best = plan
        if best is not None and best.makespan <= found.seconds * (1 + TOLERANCE * 9 / 10):
            break
    return best


class _Plan:
    """The paths, flows and makespan for an optimum of rates."""

    def __init__(self, network: Network, demand: Demand, rates: LinearOptimum, placing: Placing) -> None:
        self.prices = rates.prices
        self.paths: list[PlannedPath] = []
        self.flows: dict[LinkKey, Fraction] = defaultdict(Fraction)
        self.origins: dict[tuple[str, str], Fraction] = defaultdict(Fraction)
        seconds = rates.seconds * (1 + TOLERANCE * 8 / 10)
        for sink, flow in exact_flows(network, demand.budget, rates, placing, seconds).items():
            files, graph = wanted(demand, sink), rates.graphs[sink]
            self.paths += paths_of(graph, flow, files, fastest())
            for key, size in flows_of(graph, flow).items():
                self.flows[key] += size
            for origin, size in origins_of(graph, flow, files).items():
                self.origins[origin] += size
        limits = PlanLimits(network, demand.budget)
        self.makespan = limits.seconds(self.flows)
        spent = limits.loads(self.flows).get(BUDGET, Fraction(0))
        self.keeps_budget = not spent or spent <= limits.capacity(BUDGET) * (1 + PRECISE)
