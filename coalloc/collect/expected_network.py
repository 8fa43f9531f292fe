"""The network for which a collect job is planned: known facts, and guesses for the rest. Pure.

Hosts are named by the labels of their servers, `scheme://host:port`, and this machine HERE.
"""

from collections.abc import Collection, Mapping
from dataclasses import replace
from itertools import product
from math import ceil

from coalloc.collect.values import HERE
from coalloc.errors import UsageError
from coalloc.history.values import source_key
from coalloc.model.forecasts import Estimate
from coalloc.planner.documents.scenario import Scenario
from coalloc.planner.network import Demand, Host, Isp, Link, LinkKey, Network

__all__ = ["guessed", "inward", "is_known", "labelled"]

UNKNOWN = 12_500_000
"""Bytes per second that an unknown host is assumed to send and receive."""


def labelled(scenario: Scenario) -> Scenario:
    """Return the scenario with hosts named by their labels; the host without a server is this machine.

    :raises UsageError: when several hosts have no server, and none of them is called HERE
    """
    names = {name: source_key(url) for name, url in scenario.urls.items()}
    others = [name for name in scenario.network.hosts if name not in names]
    here = HERE if HERE in others else others[0] if others else None
    if here != HERE and len(others) > 1:
        raise UsageError(
            f"the network has no server for {' and '.join(others)}",
            f"give them a url: ftp://HOST:PORT, and name this machine {HERE!r}",
        )
    if here:
        names[here] = HERE
    network = scenario.network.keeping(lambda key: key.source in names and key.sink in names)
    hosts = {names[name]: replace(host, name=names[name]) for name, host in network.hosts.items() if name in names}
    links = {_renamed(key, names): replace(link, key=_renamed(key, names)) for key, link in network.links.items()}
    shared = tuple(
        each._replace(weights={_renamed(key, names): weight for key, weight in each.weights.items()})
        for each in network.shared
    )
    urls = {names[name]: url for name, url in scenario.urls.items()}
    return scenario._replace(network=Network(hosts, links, shared), urls=urls)


def _renamed(key: LinkKey, names: Mapping[str, str]) -> LinkKey:
    return key._replace(source=names[key.source], sink=names[key.sink])


def inward(estimates: Mapping[str, Estimate]) -> Network:
    """Return the network of the links to this machine, from its own downloads' estimates by server label."""
    links = []
    for label, estimate in estimates.items():
        if estimate.rate:
            low, high = estimate.bounds or (estimate.rate, estimate.rate)
            links.append(Link(LinkKey(label, HERE), max(1, int(estimate.rate)), (int(low), ceil(high))))
    return Network.of((Host(HERE), *map(Host, estimates)), tuple(links))


def guessed(
    known: Network,
    servers: Collection[str],
    destination: str,
    complete: bool,
    senders: Collection[str] = frozenset(),
) -> Network:
    """Return the network completed by guesses: unknown links are as fast as the fastest known one.

    The access rates of hosts are guessed, too: without them, every relay would seem to be a gain.

    :param complete: whether `known` is complete, except for links to the destination, which each host has
    :param senders: servers that send to the destination only
    """

    def is_possible(source: str, sink: str) -> bool:
        return sink not in senders and (source not in senders or sink == destination)

    best = max((link.capacity for link in known.links.values()), default=UNKNOWN)
    names = dict.fromkeys([*servers, destination])
    hosts = {name: known.hosts.get(name, Host(name)) for name in names}
    if not complete:
        hosts = {name: replace(host, isps=host.isps or (Isp("", best, best),)) for name, host in hosts.items()}
    hosts |= {name: replace(host, relays=False) for name, host in hosts.items() if name == HERE or name in senders}
    known_links = {key: link for key, link in known.links.items() if {key.source, key.sink} <= names.keys()}
    links = {key: link for key, link in known_links.items() if is_possible(key.source, key.sink)}
    there = {key[:2] for key in links}
    for source, sink in product(servers, names):
        wanted = source != sink and is_possible(source, sink) and (sink == destination or not complete)
        if wanted and (source, sink) not in there:
            key = LinkKey(source, sink, *(_first(hosts[end]) for end in (source, sink)))
            links[key] = Link(key, best)
    return Network(hosts, links, tuple(each for each in known.shared if each.weights.keys() <= links.keys()))


def _first(host: Host) -> str:
    return host.isps[0].name if host.isps else ""


def is_known(known: Network, demand: Demand) -> bool:
    """Return whether a direct link is known for each file and destination."""
    there = {key[:2] for key in known.links}
    return all(
        any((holder, to) in there for holder in file.holders) for file in demand.files for to in file.destinations
    )
