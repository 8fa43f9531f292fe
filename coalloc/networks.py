"""Networks of servers, from this user's measurements and from a broker's forecasts."""

from collections.abc import Mapping, Sequence
from itertools import permutations
from math import ceil

from coalloc.brokerclient import Broker
from coalloc.history import source_key
from coalloc.model import Estimate
from coalloc.pairs import EVERYBODY, forecasts
from coalloc.planner.network import Host, Isp, Link, LinkKey, Network
from predictors.observation import Forecast, Observation

__all__ = ["expected_network", "measured_network"]


def measured_network(urls: Mapping[str, str], seen: Sequence[Observation], now: float) -> Network:
    """Return the measured network of servers: pairs without measurements have no link.

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
    """Return a broker's forecast network, based on its measurements of these servers or of similar ones.

    Raises the errors of the broker client.
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
