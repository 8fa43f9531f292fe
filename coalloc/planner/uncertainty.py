"""The uncertainty of links' capacities, by their bounds and ages, and networks with cautious capacities. Pure.

The logarithm of a true capacity, divided by the stated one, is assumed to have a Laplace distribution around 0.
"""

from dataclasses import replace
from math import exp, inf, log, sqrt
from typing import NamedTuple

from coalloc.planner.network import Demand, Link, Network

__all__ = [
    "NO_CAUTION",
    "NO_RELAYS",
    "Caution",
    "direct_pairs",
    "lowered",
    "lowered_capacity",
    "spread",
]

DRIFT, AFTER = 0.37, 5 * 86400.0
"""Scale of the distribution for links that were measured `AFTER` seconds ago.

Rates between cloud regions, measured twice, five days apart, differ by a median of 24.8 %, and 34 % of them by less
than 15 %. This distribution has both properties.
"""
OLDEST = 30 * 86400.0
"""Age in seconds from which the uncertainty does not grow further."""
INTERVAL = log(5)
"""Distance from the median to the quantile of 90 %, for a scale of 1."""
WIDEST = 3.0
"""Maximum scale: nine of ten rates are then within a factor of 125."""
LOWEST = log(1e-4)
"""Logarithm of the smallest factor by which capacities are lowered: for wider ranges, HiGHS is not precise."""


class Caution(NamedTuple):
    """Amounts by which capacities are lowered before a plan is made, in units of the scale of their distribution.

    :param direct: for links from a holder of a file to a destination of the same file
    :param relayed: for all other links; inf for a plan that relays only files without a direct path
    """

    direct: float
    relayed: float


NO_CAUTION, NO_RELAYS = Caution(0, 0), Caution(0, inf)
"""The stated capacities, with and without relays for files that have a direct path."""


def spread(link: Link) -> float:
    """Return the scale of the distribution of a link's capacity; 0 if nothing is said about its uncertainty.

    Without bounds, the uncertainty grows with the square root of the age. Bounds refer to the present, but are not
    believed to be closer than that.

    >>> from coalloc.planner.network import LinkKey
    >>> key = LinkKey("a", "b")
    >>> spread(Link(key, 100)), spread(Link(key, 100, age=5 * 86400.0)), spread(Link(key, 100, (20, 500), age=60.0))
    (0.0, 0.37, 1.0)
    """
    low, high = link.bounds or (link.capacity, link.capacity)
    stated = 0.0
    if high > low:
        stated = log(high / low) / 2 / INTERVAL if low else WIDEST
    aged = DRIFT * sqrt(min(link.age or 0.0, OLDEST) / AFTER)
    return min(max(stated, aged), WIDEST)


def lowered_capacity(capacity: int, scale: float, caution: float) -> int:
    """Return a cautious capacity, which is 0 only if the stated one is 0.

    >>> lowered_capacity(1000, 0.37, 2), lowered_capacity(1, 3.0, 9), lowered_capacity(2**59 + 1, 0.0, 9)
    (477, 1, 576460752303423489)
    """
    if not caution or not scale or not capacity:
        return capacity
    return min(capacity, max(1, int(capacity * exp(max(-caution * scale, LOWEST)))))


def direct_pairs(demand: Demand) -> set[tuple[str, str]]:
    """Return the pairs of a holder of a file and a destination of the same file."""
    return {(holder, to) for file in demand.files for holder in file.holders for to in file.destinations}


def lowered(network: Network, demand: Demand, caution: Caution) -> Network:
    """Return the network with cautious capacities; the stated ones if `caution` only excludes relays."""
    if not network.is_uncertain or caution in (NO_CAUTION, NO_RELAYS):
        return network
    pairs = direct_pairs(demand)
    links = {
        key: replace(
            link,
            capacity=lowered_capacity(
                link.capacity, spread(link), caution.direct if key[:2] in pairs else caution.relayed
            ),
        )
        for key, link in network.links.items()
    }
    return replace(network, links=links)
