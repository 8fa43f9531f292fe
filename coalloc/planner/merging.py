"""Merging of networks known from several places."""

from collections.abc import Mapping
from dataclasses import replace

from coalloc.planner.network import Host, LinkKey, Network

__all__ = ["joined"]


def joined(first: Network, *others: Network) -> Network:
    """Return the first network, completed by the hosts, limits and links that only the others know.

    >>> from coalloc.planner.network import Isp
    >>> a, b = Host("a"), Host("b", (Isp("", up=5),))
    >>> joined(Network.of((a,), ()), Network.of((Host("a", io=1), b), ())) == Network.of((Host("a", io=1), b), ())
    True
    """
    hosts, links, shared = dict(first.hosts), dict(first.links), list(first.shared)
    for other in others:
        for name, host in other.hosts.items():
            hosts[name] = _filled(hosts[name], host) if name in hosts else host
        links = {**other.links, **links}
        shared += [each for each in other.shared if each not in shared]
    links = {key: link for key, link in links.items() if _fits(key, hosts)}
    return Network(hosts, links, tuple(shared))


def _filled(host: Host, other: Host) -> Host:
    return replace(
        host,
        isps=host.isps or other.isps,
        io=other.io if host.io is None else host.io,
        storage=other.storage if host.storage is None else host.storage,
    )


def _fits(key: LinkKey, hosts: Mapping[str, Host]) -> bool:
    """Return whether the link's hosts have its ISPs: one network may know several ISPs of a host, another one none."""
    ends = ((key.source, key.source_isp), (key.sink, key.sink_isp))
    return all(isp in ({each.name for each in hosts[name].isps} or {""}) for name, isp in ends)
