"""The door of the planner: any demand on any network."""

from coalloc.planner.deadline import in_time
from coalloc.planner.demands import is_flow
from coalloc.planner.libraries import needed
from coalloc.planner.network import Demand, Network
from coalloc.planner.plan import TransferPlan

__all__ = ["plan"]


def plan(network: Network, demand: Demand) -> TransferPlan:
    """The least time in which everything is where it is wanted, over relays where that is faster.

    Exact, by max-flow, where that can answer; within a millionth, by a linear program, for several destinations,
    shared sets, budgets, and disks of relays that have replicas. Never slower than the best plan without relays. The
    storage that hosts lend is not looked at: what they relay goes on as it comes.

    :raises UsageError: when something cannot get where it is wanted, not in time, or not for that money
    """
    with needed():
        from coalloc.planner import static
    found = static.solve(network, demand) if is_flow(network, demand) else _by_linear_program(network, demand)
    in_time(network, demand, found.makespan)
    return found


def _by_linear_program(network: Network, demand: Demand) -> TransferPlan:
    with needed():  # only now: loading the solver takes as long as many max-flows
        from coalloc.planner.relaxed import solve
    return solve(network, demand)
