"""Networks of servers, from what this user has measured and from what a broker expects."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import permutations
from math import ceil

from coalloc.brokerclient import Broker
from coalloc.history import source_key
from coalloc.model import Estimate
from coalloc.pairs import EVERYBODY, forecasts
from coalloc.planner.network import Host, Isp, Link, LinkKey, Network
from predictors.observation import Forecast, Observation

__all__ = ["expected_network", "joined", "measured_network"]


def measured_network(urls: Mapping[str, str], seen: Sequence[Observation], now: float) -> Network:
    """What was measured between servers: pairs of which nothing is known have no link.

    :param urls: the server of each host, as `ftp://host:port`
    :param seen: measurements, in the order of their ends
    :param now: seconds since the epoch, from which the age of links counts
    """
    known = forecasts(seen, now)
    keys = {name: source_key(url) for name, url in urls.items()}
    hosts = []
    for name, key in keys.items():
        up, down = (_middle(known.get(pair)) for pair in ((key, EVERYBODY), (EVERYBODY, key)))
        hosts.append(Host(name, (Isp("", up, down),) if up or down else ()))
    links = [
        _link(LinkKey(a, b), forecast)
        for a, b in permutations(keys, 2)
        if (forecast := known.get((keys[a], keys[b]))) and forecast.rates
    ]
    return Network.of(tuple(hosts), tuple(links))


def _middle(forecast: Forecast | None) -> int | None:
    return None if forecast is None or forecast.rates is None else max(1, int(forecast.rates.p50))


def _link(key: LinkKey, forecast: Forecast) -> Link:
    assert forecast.rates, "it was looked at before"
    low, middle, high = forecast.rates
    return Link(key, max(1, int(middle)), (int(low), ceil(high)), forecast.newest_age)


async def expected_network(urls: Mapping[str, str], broker: Broker) -> Network:
    """What a broker expects of transfers between servers, measured there or like others that are.

    Raises what a broker's answers do.
    """
    pairs = list(permutations(urls, 2))
    found = await broker.expected([(source_key(urls[a]), source_key(urls[b])) for a, b in pairs])
    links = [
        _expected(LinkKey(*pair), estimate, age)
        for pair, (estimate, age) in zip(pairs, found, strict=True)
        if estimate.rate
    ]
    return Network.of(tuple(map(Host, urls)), tuple(links))


def _expected(key: LinkKey, estimate: Estimate, age: float | None) -> Link:
    low, high = estimate.bounds or (estimate.rate or 0, estimate.rate or 0)
    return Link(key, max(1, int(estimate.rate or 0)), (int(low), ceil(high)), age)


def joined(first: Network, *others: Network) -> Network:
    """All of the first one, and what others know beside it: hosts, their limits, links.

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
    """Whether its ends have these ISPs: a network may know several of a host that another knows as one."""
    ends = ((key.source, key.source_isp), (key.sink, key.sink_isp))
    return all(isp in ({each.name for each in hosts[name].isps} or {""}) for name, isp in ends)
