"""A planner of transfers through a network: a network and a demand in, a certified plan out. Pure."""

from coalloc.planner.demands import is_flow
from coalloc.planner.network import Demand, File, Host, Isp, Link, LinkKey, Network, Shared
from coalloc.planner.plan import Certificate, Limit, PlannedPath, TransferPlan
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
    "plan",
]


def plan(network: Network, demand: Demand) -> TransferPlan:
    """Plan the least makespan of a demand, through relays where that is faster.

    The plan is exact, by max-flow, where max-flow applies. For several destinations, shared sets, budgets, and disks of
    relays that have replicas, it is within a millionth of the least, by a linear program. It is never slower than the
    best plan without relays. The storage that hosts lend is ignored, because relays forward data as they arrive.

    :raises UsageError: when some data cannot reach a destination, not in time, or not within the budget
    """
    with needed():
        from coalloc.planner.static import makespan
    found = makespan.solve(network, demand) if is_flow(network, demand) else _by_linear_program(network, demand)
    in_time(network, demand, found.makespan)
    return found


def _by_linear_program(network: Network, demand: Demand) -> TransferPlan:
    with needed():  # imported late: loading the solver takes as long as many max-flows
        from coalloc.planner.static.relaxed import solve
    return solve(network, demand)
