"""Estimates of all links' capacities: known at first, then corrected by measurements (Confluence, 3.4). Pure."""

from collections import defaultdict
from collections.abc import Collection, Container, Mapping
from dataclasses import replace
from random import Random

from coalloc.collect.methods.adaptive.link_queue import Pair
from coalloc.planner.network import Host, LinkKey, Network

__all__ = ["PEERS", "SLACK", "Estimates", "corrected", "overlay"]

SLACK = 0.05
"""Relative shortfall from the planned rate up to which a pair's estimated capacity is not lowered."""
PEERS = 10
"""Maximum number of relays to which a host may send: more would gain little, and cost planning time."""
STALE = 30.0
"""Seconds without use after which a lowered capacity is raised again."""


def corrected(capacity: float, measured: float, planned: float) -> float:
    """Return the capacity of a pair after a period with a measurement; all in bytes per second.

    It rises to the measured rate. It falls only if the pair was slower than planned, and by half at most, because the
    cause may be temporary.

    >>> corrected(100, measured=96, planned=100), corrected(100, measured=120, planned=100)
    (100, 120)
    >>> corrected(100, measured=80, planned=100), corrected(100, measured=10, planned=100)
    (80, 50.0)
    """
    if measured >= planned * (1 - SLACK):
        return max(capacity, measured)
    return max(capacity / 2, measured)


def overlay(network: Network, wanted: Collection[str], chance: Random, peers: int = PEERS) -> Network:
    """Return the network in which every host sends only to `peers` random hosts and to the destinations (3.2)."""
    sinks_by_source: defaultdict[str, set[str]] = defaultdict(set)
    for key in network.links:
        if key.sink not in wanted:
            sinks_by_source[key.source].add(key.sink)
    chosen = {
        (source, sink)
        for source, sinks in sinks_by_source.items()
        for sink in chance.sample(sorted(sinks), min(peers, len(sinks)))
    }
    return network.keeping(lambda key: key.sink in wanted or key[:2] in chosen)


class Estimates:
    """The estimated network.

    It begins with capacities that are reached in nine of ten cases (`Network.cautious`). Estimates that are too high
    cost more than those that are too low, because pairs in use are measured and corrected upwards at once.
    """

    def __init__(self, network: Network) -> None:
        self._known = network
        self._hosts = dict(network.hosts)
        self._capacity = {key: float(link.capacity) for key, link in network.cautious().links.items()}
        self._links: dict[Pair, list[LinkKey]] = {}
        for key in network.links:
            self._links.setdefault((key.source, key.sink), []).append(key)
        self._believed_at: dict[Pair, float] = {}

    @property
    def pairs(self) -> Collection[Pair]:
        """The pairs that have links."""
        return self._links.keys()

    def capacity(self, pair: Pair) -> float:
        """Return the bytes per second of a pair, over all of its ISPs."""
        return sum(self._capacity[key] for key in self._links.get(pair, ()))

    def measured(self, now: float, pair: Pair, rate: float, planned: float) -> None:
        """Learn the measured rate of a pair in use."""
        old = self.capacity(pair)
        self._believed_at[pair] = now
        self._scale(pair, corrected(old, rate, planned))

    def rested(self, now: float, pair: Pair) -> None:
        """Note that a pair was not in use; after a while its lowered capacity is raised, so that it is tried again."""
        known = sum(self._known.links[key].capacity for key in self._links.get(pair, ()))
        since = self._believed_at.setdefault(pair, now)
        if now - since >= STALE and (old := self.capacity(pair)) < known:
            self._believed_at[pair] = now
            self._scale(pair, min(2 * old, known))

    def _scale(self, pair: Pair, capacity: float) -> None:
        old, keys = self.capacity(pair), self._links.get(pair, ())
        for key in keys:
            part = self._capacity[key] / old if old else 1 / len(keys)
            self._capacity[key] = capacity * part

    def saw(self, rates: Mapping[Pair, float]) -> None:
        """Learn the simultaneous rates of all pairs: a host's access is at least as fast as their sum (3.2)."""
        up: defaultdict[str, float] = defaultdict(float)
        down: defaultdict[str, float] = defaultdict(float)
        for (source, sink), rate in rates.items():
            up[source] += rate
            down[sink] += rate
        for name, host in self._hosts.items():
            self._hosts[name] = _wider(host, int(up[name]), int(down[name]))

    def network(self, unused: Container[Pair] = ()) -> Network:
        """Return the current estimates, for the planner, which takes them for exact.

        :param unused: pairs that are left out
        """
        links = {
            key: replace(link, capacity=max(min(1, link.capacity), int(self._capacity[key])), bounds=None, age=None)
            for key, link in self._known.links.items()
        }
        return Network(self._hosts, links, self._known.shared).keeping(lambda key: key[:2] not in unused)

    def relays_no_more(self, host: str) -> None:
        """Note that a host has no space for relayed data."""
        self._hosts[host] = replace(self._hosts[host], relays=False)

    def gone(self, host: str) -> None:
        """Remove a lost host."""
        self._known = self._known.without(host)
        self._hosts.pop(host, None)
        self._links = {pair: keys for pair, keys in self._links.items() if host not in pair}


def _wider(host: Host, up: int, down: int) -> Host:
    if len(host.isps) != 1:  # with several, it is unknown which one carried the data
        return host
    (isp,) = host.isps
    isp = isp._replace(
        up=isp.up if isp.up is None else max(isp.up, up), down=isp.down if isp.down is None else max(isp.down, down)
    )
    return replace(host, isps=(isp,))
