"""Plans for moving files through a network, which the broker completes with its own data."""

from itertools import permutations
from math import ceil
from typing import NamedTuple

from pydantic import ValidationError

from broker.errors import Invalid, TooLarge
from broker.models.callers import Caller
from broker.models.catalogue import Endpoint
from broker.models.forecasts import Expected, ForecastRequest
from broker.models.plans import FlowsRequest
from broker.services.auth.permissions import NOBODY
from broker.services.forecasting.forecasts import Forecasting
from broker.services.network.places import Places
from broker.services.planning.flow_computation import HostNames, ends_of, planned
from broker.subprocesses import JobKind, SeparateProcess
from coalloc.planner.network import Host, Isp, Link, LinkKey, Network

__all__ = ["Flows"]

PLANNING = JobKind("the plan", "leave out hosts, links or files, or plan in parts")
FILLED = 100
"""Most hosts whose missing links are filled in from forecasts."""


class HostServer(NamedTuple):
    """The server of a host: its address in stored form, and its endpoint if it has one."""

    address: str
    endpoint: Endpoint | None


class Flows:
    """The planning of many files.

    :param apart: subprocess that computes plans
    """

    def __init__(self, places: Places, forecasting: Forecasting, apart: SeparateProcess) -> None:
        self._places = places
        self._forecasting = forecasting
        self._apart = apart

    async def make(self, request: FlowsRequest, caller: Caller = NOBODY) -> bytes:
        """Plan which host sends which bytes to which host; return `FlowsPlanned` as JSON.

        :param caller: user of the plan; collections that the caller may not see are treated as unknown
        :raises Invalid: when the request is inconsistent, or a file has no route
        :raises TooLarge: when the request exceeds a limit
        :raises TooManyRequests: when the caller has used up their planning time
        :raises Unavailable: when a library for planning is not installed
        """
        ends = await self._apart.run(PLANNING, caller.subject, ends_of, request)
        return await self._apart.run(PLANNING, caller.subject, planned, request, await self._known(ends, caller))

    async def _known(self, host_names: HostNames, caller: Caller) -> Network:
        """Return the network that the broker knows: capacities of endpoints, and forecasts as links.

        Links are returned for each pair of servers for which the request has none.
        """
        places = await self._located(host_names, caller)
        if len(places) > FILLED:
            raise TooLarge(
                f"the request names {len(places)} servers, but the broker adds links between at most {FILLED}",
                "give their links, and leave out url, or plan in parts",
            )
        hosts = [Host(name, _access(place.endpoint)) for name, place in places.items()]
        host_pairs = [pair for pair in permutations(places, 2) if pair not in host_names.linked]
        expected = await self._forecasting.ask(
            [_forecast_request(places[a].address, places[b].address) for a, b in host_pairs]
        )
        links = [_link(LinkKey(*pair), each) for pair, each in zip(host_pairs, expected, strict=True)]
        return Network.of(tuple(hosts), tuple(filter(None, links)))

    async def _located(self, host_names: HostNames, caller: Caller) -> dict[str, HostServer]:
        known = await self._places.map()
        named = {
            name: host_names.urls.get(name, name)
            for name in host_names.hosts
            if name in host_names.urls or name in known.by_name
        }
        addresses = await self._places.sources(named.values(), caller)
        endpoints = {placed.endpoint.source: placed.endpoint for placed in known.by_id.values()}
        return {name: HostServer(addresses[url], endpoints.get(addresses[url])) for name, url in named.items()}


def _forecast_request(source: str, sink: str) -> ForecastRequest:
    try:
        return ForecastRequest(source=source, sink=sink)
    except ValidationError:
        raise Invalid(f"{source} or {sink} is not an address of a server", "write it as SCHEME://HOST[:PORT]") from None


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
