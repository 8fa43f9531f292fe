"""How files would go through a network: what the caller says of it, filled in with what is known here."""

import asyncio
from collections.abc import Mapping
from itertools import permutations
from math import ceil
from typing import NamedTuple

from pydantic import ValidationError

from broker.errors import Invalid, TooLarge, Unavailable
from broker.models.access import Caller
from broker.models.catalogue import Endpoint
from broker.models.forecasts import Asked, Expected
from broker.models.plans import FlowsPlanned, FlowsWanted
from broker.services.forecasting import Forecasting
from broker.services.permissions import NOBODY
from broker.services.places import Places
from coalloc.errors import UsageError
from coalloc.planner import plan
from coalloc.planner.answer import answer
from coalloc.planner.joining import joined
from coalloc.planner.network import Demand, Host, Isp, Link, LinkKey, Network
from coalloc.planner.scenario import Scenario, document, scenario

__all__ = ["Flows"]

SECONDS = 30.0
"""For solving, those included for which others are served first."""
AT_ONCE = 1
"""Plans that are solved side by side: each takes a core."""
FILLED = 100
"""Hosts between which forecasts are filled in."""
ENDS = 50_000
"""ISPs of all hosts, and holders and destinations of all files, together."""


class Place(NamedTuple):
    """The server of a host, as its transfers are filed, and what is known of it."""

    address: str
    endpoint: Endpoint | None


class Flows:
    """Plans of many files."""

    def __init__(self, places: Places, forecasting: Forecasting) -> None:
        self._places = places
        self._forecasting = forecasting
        self._turns = asyncio.Semaphore(AT_ONCE)

    async def make(self, wanted: FlowsWanted, caller: Caller = NOBODY) -> FlowsPlanned:
        """Who should send what to whom.

        :param caller: who asks: collections that they may not see are not there
        :raises Invalid: when the network or the demand makes no sense, or there is no way
        :raises TooLarge: when it is more than is planned here
        :raises Unavailable: when solving takes too long, or what it needs is not installed
        """
        said = await asyncio.to_thread(_read, wanted)
        network = joined(said.network, await self._known(said, caller))
        try:
            async with asyncio.timeout(SECONDS):
                made = await self._solve(network, said.demand)
        except TimeoutError:
            raise Unavailable("planning takes too long", "leave hosts or links out, or try again later") from None
        described = document(Scenario(network, urls=said.urls))
        return FlowsPlanned.model_validate({**made, "network": described})

    async def _solve(self, network: Network, demand: Demand) -> Mapping[str, object]:
        """In its turn, which lasts until the thread is through: nothing else ends one, whoever still waits for it."""
        await self._turns.acquire()
        solving = asyncio.ensure_future(asyncio.to_thread(_solved, network, demand))
        solving.add_done_callback(lambda _: self._turns.release())
        return await asyncio.shield(solving)

    async def _known(self, said: Scenario, caller: Caller) -> Network:
        """Of hosts that are servers: capacities of endpoints, and what to expect between any two without a link."""
        places = await self._located(said, caller)
        if len(places) > FILLED:
            raise TooLarge(
                f"{len(places)} hosts are servers; links are filled in between {FILLED} at most",
                "name their links, and leave out url, or plan in parts",
            )
        hosts = [Host(name, _access(place.endpoint)) for name, place in places.items()]
        linked = {(key.source, key.sink) for key in said.network.links}
        pairs = [pair for pair in permutations(places, 2) if pair not in linked]
        expected = await self._forecasting.ask([_asked(places[a].address, places[b].address) for a, b in pairs])
        links = [_link(LinkKey(*pair), each) for pair, each in zip(pairs, expected, strict=True)]
        return Network.of(tuple(hosts), tuple(filter(None, links)))

    async def _located(self, said: Scenario, caller: Caller) -> dict[str, Place]:
        known = await self._places.map()
        named = {
            name: said.urls.get(name, name) for name in said.network.hosts if name in said.urls or name in known.by_name
        }
        addresses = await self._places.sources(named.values(), caller)
        endpoints = {placed.endpoint.source: placed.endpoint for placed in known.by_id.values()}
        return {name: Place(addresses[url], endpoints.get(addresses[url])) for name, url in named.items()}


def _read(wanted: FlowsWanted) -> Scenario:
    try:
        said = scenario({name: value for name, value in wanted.model_dump().items() if value not in (None, {})})
    except UsageError as error:
        raise Invalid(error.message, error.remedy) from None
    ends = sum(len(host.isps) for host in said.network.hosts.values())
    ends += sum(len(file.holders) + len(file.destinations) for file in said.demand.files)
    if ends > ENDS:
        raise TooLarge(f"the hosts and files name {ends} places", f"name {ENDS} at most, or plan in parts")
    return said


def _solved(network: Network, demand: Demand) -> Mapping[str, object]:
    try:
        return answer(network, plan(network, demand))
    except UsageError as error:
        if isinstance(error.__cause__ or error.__context__, ImportError):
            raise Unavailable(f"{error.message} at the broker", error.remedy) from None
        raise Invalid(error.message, error.remedy) from None


def _asked(source: str, sink: str) -> Asked:
    try:
        return Asked(source=source, sink=sink)
    except ValidationError:
        raise Invalid(f"{source} or {sink} is no address of a server", "write it as SCHEME://HOST[:PORT]") from None


def _access(endpoint: Endpoint | None) -> tuple[Isp, ...]:
    if endpoint is None or endpoint.capacity is None:
        return ()
    capacity = max(1, int(min(endpoint.capacity, 2**62)))
    return (Isp("", capacity, capacity),)


def _link(key: LinkKey, expected: Expected) -> Link | None:
    rate = expected.rate
    if rate is None:
        return None
    return Link(key, max(1, int(rate.p50)), (int(rate.p10), ceil(rate.p90)), expected.newest_age)
