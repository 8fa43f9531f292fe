"""The least makespan for one destination, over relays where that is faster."""

from coalloc.planner.network import Demand, Network
from coalloc.planner.results import TransferPlan
from coalloc.planner.solvers.libraries import needed

__all__ = ["least_makespan"]


def least_makespan(network: Network, demand: Demand) -> TransferPlan:
    """Return Confluence's plan: the exact least makespan, with rates and paths. It is never slower than without relays.

    :param demand: files with one common destination
    :raises UsageError: when no links lead to it, or max-flow does not apply (use `coalloc.planner.plan`)
    """
    with needed():
        from coalloc.planner.static.makespan import solve
    return solve(network, demand)
