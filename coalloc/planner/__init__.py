"""A planner of transfers through a network, whose plans have certificates. Pure."""

from coalloc.planner.demands import is_flow
from coalloc.planner.network import Demand, File, Host, Isp, Link, LinkKey, Network, Shared
from coalloc.planner.results import Certificate, Limit, PlannedPath, TransferPlan
from coalloc.planner.solvers.libraries import needed
from coalloc.planner.static.deadline import in_time

__all__ = [
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

    :raises UsageError: when some data cannot reach a destination, at all, in time, or within the budget
    """
    with needed():
        from coalloc.planner.static import makespan
    found = makespan.solve(network, demand) if is_flow(network, demand) else _by_linear_program(network, demand)
    in_time(network, demand, found.makespan)
    return found


def _by_linear_program(network: Network, demand: Demand) -> TransferPlan:
    with needed():  # imported here, as loading the solver takes as long as many max-flows
        from coalloc.planner.static.linear_program import solve
    return solve(network, demand)
