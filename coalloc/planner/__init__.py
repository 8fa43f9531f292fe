"""A planner of transfers through a network, whose plans have certificates. Pure."""

from collections.abc import Callable

from coalloc.planner.demands import is_flow
from coalloc.planner.network import Demand, File, Host, Isp, Link, LinkKey, Network, Shared
from coalloc.planner.results import Certificate, Limit, PlannedPath, TransferPlan
from coalloc.planner.solvers.libraries import needed
from coalloc.planner.static.deadline import in_time
from coalloc.planner.uncertainty import NO_CAUTION, Caution

__all__ = [
    "Caution",
    "Certificate",
    "Demand",
    "File",
    "Host",
    "Isp",
    "Limit",
    "Link",
    "LinkKey",
    "Network",
    "PlannedPath",
    "Shared",
    "TransferPlan",
    "least_makespan",
    "plan",
]


def least_makespan(network: Network, demand: Demand) -> TransferPlan:
    """Return Confluence's plan: the exact least makespan, with rates and paths. It is never slower than without relays.

    :param demand: files with one common destination
    :raises UsageError: when no links lead to it, or max-flow does not apply (use `plan`)
    """
    with needed():
        from coalloc.planner.static import makespan
    return makespan.solve(network, demand)


def plan(network: Network, demand: Demand) -> TransferPlan:
    """Return the plan of least makespan for a demand, over relays where that is faster.

    If max-flow applies, the plan is exact. For several destinations, shared links, budgets, and limited disks of relays
    that have replicas, a linear program finds a plan within a millionth of the least. The plan is never slower than the
    best plan without relays. The storage of hosts is ignored, because relays forward data as they arrive.

    If the capacities of links are uncertain, by their bounds or their ages, relays are used only if they are probably
    faster and hardly ever slower than direct transfers, and only as much as is safe. The plan then has their `chance`.
    If a deadline excludes that plan, the safest of those that meet it is chosen.

    :raises UsageError: when some data cannot reach a destination, at all, in time, or within the budget
    """
    with needed():
        from coalloc.planner.static import cautious, makespan

    def exact(part: Demand) -> Callable[[Caution], TransferPlan]:
        if is_flow(network, part):
            return makespan.MakespanSolver(network, part).plan
        with needed():  # imported here, as loading the solver takes as long as many max-flows
            from coalloc.planner.static.linear_program import LinearSolver
        return LinearSolver(network, part).plan

    found = cautious.solve(network, demand, exact) if network.is_uncertain else exact(demand)(NO_CAUTION)
    in_time(network, demand, found.makespan)
    return found
