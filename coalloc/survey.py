"""Measurement of servers: stores the results, reports them to the broker, and returns the network known by then."""

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from random import getrandbits
from typing import NamedTuple

from coalloc.brokerclient import Broker
from coalloc.config import access, some_access
from coalloc.history import source_key
from coalloc.networks import expected_network, measured_network
from coalloc.outbox import tell
from coalloc.pairs import Measured, Pairs, observations
from coalloc.planner.joining import joined
from coalloc.planner.scenario import Scenario
from coalloc.probing import Limits, measure
from coalloc.progress.human import labels

__all__ = ["Survey", "filled", "survey"]


class Survey(NamedTuple):
    """The new measurements, and the network as known by then, including earlier measurements.

    Hosts are named by their names and ports; `urls` are their servers.
    """

    measured: list[Measured]
    scenario: Scenario


async def survey(
    sources: Sequence[str],
    sinks: Sequence[str],
    limits: Limits,
    peers: int | None = None,
    blast: bool = False,
    broker: str | None = None,
    told: Callable[[Measured], None] | None = None,
    delegate: Sequence[str] = (),
) -> Survey:
    """Measure the links between servers, as in `coalloc.probing.measure`.

    Measurements are stored even when this is cancelled midway. `told` receives every result as it comes.

    :param broker: the address of the broker to report to, if it is not the user's usual one
    :param delegate: hosts that may be given a limited proxy if they require one
    :raises UsageError: when the URLs are invalid
    """
    known, past = access(broker), Pairs.open()
    measured: list[Measured] = []

    def note(result: Measured) -> None:
        measured.append(result)
        if told:
            told(result)

    try:
        await measure(sources, sinks, limits, peers, blast, getrandbits(32), note, frozenset(delegate))
    finally:
        past.add(measured)
    if known:
        with suppress(asyncio.CancelledError):  # the user's work is done
            await tell(Broker(known), (), measured=measured)
    now = time.time()
    urls = _named([*sources, *sinks])
    seen = past.observations(now) or observations(measured)
    return Survey(measured, Scenario(measured_network(urls, seen, now), urls=urls))


def _named(urls: Sequence[str]) -> dict[str, str]:
    keys = list(dict.fromkeys(map(source_key, urls)))
    return dict(zip(labels(keys), keys, strict=True))


async def filled(scenario: Scenario, broker: str | None = None) -> Scenario:
    """Return a scenario, completed for its hosts from this user's measurements, and from a broker.

    :param broker: the address of the broker to ask; None asks none
    """
    urls, now = scenario.urls, time.time()
    known = [measured_network(urls, Pairs.open().observations(now), now)]
    if broker:
        known.append(await expected_network(urls, Broker(some_access(broker))))
    return scenario._replace(network=joined(scenario.network, *known))
