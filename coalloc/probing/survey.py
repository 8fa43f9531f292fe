"""Measurement of servers, with storage of the results, reports to the broker, and the resulting network."""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from itertools import permutations
from math import ceil
from random import getrandbits
from typing import NamedTuple

from coalloc.broker_client import Broker
from coalloc.broker_client.outbox import send_results
from coalloc.config import access, some_access
from coalloc.history.links import EVERYBODY, MeasuredLink, Pairs, forecasts, observations
from coalloc.history.values import source_key
from coalloc.model.forecasts import Estimate
from coalloc.planner.documents.scenario import Scenario
from coalloc.planner.network import Host, Isp, Link, LinkKey, Network, joined
from coalloc.probing import ProbeLimits, measure
from coalloc.util.human import labels
from predictors.observation import Forecast, Observation

__all__ = ["Survey", "expected_network", "filled", "measured_network", "survey"]


class Survey(NamedTuple):
    """The new measurements, and the network from these and earlier measurements.

    Hosts in the scenario are named by host name and port; `urls` are their servers.
    """

    measured: list[MeasuredLink]
    scenario: Scenario


async def survey(
    sources: Sequence[str],
    sinks: Sequence[str],
    limits: ProbeLimits,
    peers: int | None = None,
    blast: bool = False,
    broker: str | None = None,
    on_result: Callable[[MeasuredLink], None] | None = None,
    delegate: Sequence[str] = (),
) -> Survey:
    """Measure the links between servers, as in `coalloc.probing.measure`.

    Measurements are stored even after a cancellation. `on_result` receives each result as it arrives.

    :param broker: the address of the broker to report to; None for the user's usual one
    :param delegate: hosts that may get a limited proxy if they require one
    :raises UsageError: when the URLs are invalid
    """
    known, past = access(broker), Pairs.open()
    measured: list[MeasuredLink] = []

    def note(result: MeasuredLink) -> None:
        measured.append(result)
        if on_result:
            on_result(result)

    try:
        await measure(sources, sinks, limits, peers, blast, getrandbits(32), note, frozenset(delegate))
    finally:
        past.add(measured)
    if known:
        with suppress(asyncio.CancelledError):  # an interrupt must not hide the measurements
            await send_results(Broker(known), (), measured=measured)
    now = time.time()
    urls = _named([*sources, *sinks])
    seen = past.observations(now) or observations(measured)
    return Survey(measured, Scenario(measured_network(urls, seen, now), urls=urls))


def _named(urls: Sequence[str]) -> dict[str, str]:
    keys = list(dict.fromkeys(map(source_key, urls)))
    return dict(zip(labels(keys), keys, strict=True))


async def filled(scenario: Scenario, broker: str | None = None) -> Scenario:
    """Return a scenario whose links are completed from this user's measurements, then from a broker's forecasts.

    :param broker: the address of the broker to ask; None for none
    """
    urls, now = scenario.urls, time.time()
    known = [measured_network(urls, Pairs.open().observations(now), now)]
    if broker:
        known.append(await expected_network(urls, Broker(some_access(broker))))
    return scenario._replace(network=joined(scenario.network, *known))


def measured_network(urls: Mapping[str, str], seen: Sequence[Observation], now: float) -> Network:
    """Return the measured network of servers, in which pairs without measurements have no link.

    :param urls: the server of each host, as `ftp://host:port`
    :param seen: measurements, in the order of their ends
    :param now: time of the forecast, to which the age of links refers, in seconds since the epoch
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
    assert forecast.rates, "pairs without a rate have no forecast"
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
