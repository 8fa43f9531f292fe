"""The least time in which everything gets to one destination, over relays where that is faster."""

from coalloc.planner.libraries import needed
from coalloc.planner.network import Demand, Network
from coalloc.planner.plan import TransferPlan

__all__ = ["least_makespan"]


def least_makespan(network: Network, demand: Demand) -> TransferPlan:
    """Confluence's plan: the least T, exactly, rates and paths. Never slower than the best plan without relays.

    :param demand: files that all have the same one destination
    :raises UsageError: when no links lead there, or this is nothing for max-flow (`coalloc.planner.choose.plan`)
    """
    with needed():
        from coalloc.planner.static import solve
    return solve(network, demand)
