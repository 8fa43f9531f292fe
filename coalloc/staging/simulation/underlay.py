"""What lies below the pairs of hosts: links that they share, with each other and with other people's traffic."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Self

from coalloc.planner.network import Host, Link, LinkKey, Network

__all__ = ["Route", "Stream", "Underlay"]

Route = Mapping[str, float]
"""By link: how much of its capacity a byte takes; 1 for a link that is simply on the way."""


class Stream(NamedTuple):
    """Other people's traffic, without end.

    With a `rate` (bytes per second) it takes that before all others, whatever they need, as UDP does. Without one it is
    a TCP that shares fairly, in proportion to its `share`.
    """

    name: str
    route: Route
    rate: float | None = None
    share: float = 1.0


@dataclass(frozen=True)
class Underlay:
    """Links by name, in bytes per second, and the routes of ordered pairs of hosts over them.

    :param streams: other people's traffic
    :param storage: bytes that hosts lend to files of others; those that are not named have no limit
    :param shares: of pairs: how much of a bottleneck one takes in proportion to others; 1 if not named
    """

    capacities: Mapping[str, float]
    routes: Mapping[tuple[str, str], Route]
    streams: tuple[Stream, ...] = ()
    storage: Mapping[str, int] = field(default_factory=dict)
    shares: Mapping[tuple[str, str], float] = field(default_factory=dict)

    @classmethod
    def of(cls, network: Network) -> Self:
        """A network that is just as planners think. Of several links of a pair the widest is its way."""
        capacities: dict[str, float] = {}
        routes: dict[tuple[str, str], dict[str, float]] = {}
        for key, link in _widest(network).items():
            source, sink = network.hosts[key.source], network.hosts[key.sink]
            way = {str(key): float(link.capacity), **_access(source, key.source_isp, sink, key.sink_isp)}
            capacities |= way
            routes[key.source, key.sink] = dict.fromkeys(way, 1.0)
        for shared in network.shared:
            capacities[shared.name] = float(shared.capacity)
            for key, weight in shared.weights.items():
                if key in _widest(network):
                    routes[key.source, key.sink][shared.name] = weight
        storage = {name: host.storage for name, host in network.hosts.items() if host.storage is not None}
        return cls(capacities, routes, storage=storage)


def _widest(network: Network) -> dict[LinkKey, Link]:
    """The links that pairs of hosts use."""
    widest: dict[tuple[str, str], Link] = {}
    for link in network.links.values():
        pair = link.key.source, link.key.sink
        if pair not in widest or link.capacity > widest[pair].capacity:
            widest[pair] = link
    return {link.key: link for link in widest.values()}


def _access(source: Host, source_isp: str, sink: Host, sink_isp: str) -> dict[str, float]:
    """What limits at both ends."""
    up = {isp.name: isp.up for isp in source.isps}.get(source_isp)
    down = {isp.name: isp.down for isp in sink.isps}.get(sink_isp)
    limits = {
        f"{source.name} {source_isp} up": up,
        f"{sink.name} {sink_isp} down": down,
        f"{source.name} io": source.io,
        f"{sink.name} io": sink.io,
    }
    return {name: float(limit) for name, limit in limits.items() if limit is not None}
