"""The network below the pairs of hosts: links that they share, with each other and with background traffic.

It changes in order of time: links change their capacities, connections break, hosts die.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Self

from coalloc.planner.network import Host, Link, LinkKey, Network

__all__ = ["Break", "Capacity", "FluidStream", "Happening", "Kill", "Rate", "RateShare", "Route", "Underlay"]

Route = Mapping[str, float]
"""For each link, the amount of its capacity that a byte takes; 1 for an ordinary link of the route."""


class FluidStream(NamedTuple):
    """Endless background traffic.

    With a `rate` (bytes per second), it takes that rate before all other flows, as UDP does. Without, it shares fairly
    with them, as TCP does, in proportion to its `share`.
    """

    name: str
    route: Route
    rate: float | None = None
    share: float = 1.0


@dataclass(frozen=True)
class Underlay:
    """Links by name, in bytes per second, and the routes of ordered pairs of hosts over them.

    :param streams: background traffic
    :param storage: bytes that each host lends for staging; hosts without an entry have no limit
    :param shares: weight of each pair in the sharing of a bottleneck; 1 for pairs without an entry
    """

    capacities: Mapping[str, float]
    routes: Mapping[tuple[str, str], Route]
    streams: tuple[FluidStream, ...] = ()
    storage: Mapping[str, int] = field(default_factory=dict)
    shares: Mapping[tuple[str, str], float] = field(default_factory=dict)

    @classmethod
    def of(cls, network: Network) -> Self:
        """Create the underlay that planners assume for a network. A pair with several links uses the fastest one."""
        capacities: dict[str, float] = {}
        routes: dict[tuple[str, str], dict[str, float]] = {}
        for key, link in _widest(network).items():
            source, sink = network.hosts[key.source], network.hosts[key.sink]
            route = {str(key): float(link.capacity), **_access(source, key.source_isp, sink, key.sink_isp)}
            capacities |= route
            routes[key.source, key.sink] = dict.fromkeys(route, 1.0)
        for shared in network.shared:
            capacities[shared.name] = float(shared.capacity)
            for key, weight in shared.weights.items():
                if key in _widest(network):
                    routes[key.source, key.sink][shared.name] = weight
        storage = {name: host.storage for name, host in network.hosts.items() if host.storage is not None}
        return cls(capacities, routes, storage=storage)


def _widest(network: Network) -> dict[LinkKey, Link]:
    """Return the fastest link of each pair of hosts."""
    widest: dict[tuple[str, str], Link] = {}
    for link in network.links.values():
        pair = link.key.source, link.key.sink
        if pair not in widest or link.capacity > widest[pair].capacity:
            widest[pair] = link
    return {link.key: link for link in widest.values()}


def _access(source: Host, source_isp: str, sink: Host, sink_isp: str) -> dict[str, float]:
    """Return the access and disk limits of both hosts, by name, in bytes per second."""
    up = {isp.name: isp.up for isp in source.isps}.get(source_isp)
    down = {isp.name: isp.down for isp in sink.isps}.get(sink_isp)
    limits = {
        f"{source.name} {source_isp} up": up,
        f"{sink.name} {sink_isp} down": down,
        f"{source.name} io": source.io,
        f"{sink.name} io": sink.io,
    }
    return {name: float(limit) for name, limit in limits.items() if limit is not None}


class Capacity(NamedTuple):
    """A new capacity of a link, in bytes per second."""

    at: float
    link: str
    bytes_per_second: float


class Rate(NamedTuple):
    """A new rate of a stream that has a rate of its own, in bytes per second."""

    at: float
    stream: str
    bytes_per_second: float


class RateShare(NamedTuple):
    """A new weight of a pair, or of a stream that shares fairly, in the sharing of a bottleneck.

    TCP takes more with a short round-trip time than with a long one, and its share varies all the time.
    """

    at: float
    of: tuple[str, str] | str
    share: float


class Break(NamedTuple):
    """A break of a pair's connection: its current hop fails, the hops behind it continue."""

    at: float
    source: str
    sink: str


class Kill(NamedTuple):
    """The death of a host, with the loss of the pieces staged there."""

    at: float
    host: str


Happening = Capacity | Rate | RateShare | Break | Kill
