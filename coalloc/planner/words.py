"""Descriptions of plans for users: the limits of a plan."""

from collections.abc import Iterable
from fractions import Fraction

from coalloc.planner.network import LinkKey, Network
from coalloc.planner.plan import Limit

__all__ = ["duration", "named", "reason"]

FEW = 3


def duration(seconds: Fraction) -> str:
    """Return a duration as text.

    >>> duration(Fraction(1000, 3)), duration(Fraction(100000, 3))
    ('333.3 s', '33333 s')
    """
    return f"{round(seconds)} s" if seconds >= 1000 else f"{float(seconds):.4g} s"


def reason(network: Network, limits: Iterable[Limit], seconds: Fraction, direct: Fraction | None) -> str:
    """Return one sentence on the limits of a plan, and the gain of its relays."""
    limit = f"{named(network, limits)} can do it in {duration(seconds)} at best"
    if direct is None:
        return f"{limit}; without relays it cannot be done"
    if direct == seconds:
        return f"{limit}, and relays gain nothing"
    return f"{limit}; without relays it takes {duration(direct)}"


def named(network: Network, limits: Iterable[Limit]) -> str:
    """Return the names of the limits of a cut.

    >>> named(Network.of((), ()), [Limit("down", ("t", "")), Limit("io", "x")])
    'the downlink of t and the disks of x'
    """
    found: list[str] = []
    links: list[LinkKey] = []
    for limit in sorted(limits):
        match limit:
            case Limit("link", LinkKey() as key):
                links.append(key)
            case Limit("up" | "down" as way, (host, isp)):
                found.append(f"the {way}link of {host}" + f" to {isp}" * bool(isp))
            case Limit("io", host):
                found.append(f"the disks of {host}")
            case Limit("shared", name):
                found.append(f"what shares {name}")
            case _:
                found.append("the budget")
    return _listed([*_bundles(network, links), *found])


def _bundles(network: Network, links: list[LinkKey]) -> list[str]:
    if not links:
        return []
    sources, sinks = {key.source for key in links}, {key.sink for key in links}
    if len(sinks) == 1 and len(links) == sum(key.sink in sinks for key in network.links):
        return [f"all links into {links[0].sink}"]
    if len(sources) == 1 and len(links) == sum(key.source in sources for key in network.links):
        return [f"all links out of {links[0].source}"]
    if len(links) <= FEW:
        return [f"the link {key}" for key in links]
    return [f"{len(links)} links from {_hosts(sources)} to {_hosts(sinks)}"]


def _hosts(names: set[str]) -> str:
    return _listed(sorted(names)) if len(names) <= FEW else f"{len(names)} hosts"


def _listed(words: list[str]) -> str:
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)
