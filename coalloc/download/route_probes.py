"""Measurements of the routes to servers, for `coget probe --via`: a short download over each route, one after another.

The bytes are discarded. Later transfers with automatic routes begin with the route that was faster.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple
from urllib.parse import urlsplit

from coalloc.broker_client import Broker
from coalloc.broker_client.outbox import send_results
from coalloc.config import access, own_policy
from coalloc.depot.automatic import MOST_TRIED
from coalloc.depot.route import DIRECT, DepotRoute
from coalloc.download.file_queries import RELAYED
from coalloc.download.request import relayed_dialer
from coalloc.engine import open_source
from coalloc.engine.base import EngineOptions
from coalloc.engine.sessions.route_meter import RouteMeter
from coalloc.engine.span import Span
from coalloc.errors import CoallocError, SourceError, Unreachable, UsageError
from coalloc.history.route_values import MeasuredRoute
from coalloc.history.routes import RouteHistory
from coalloc.model.routes import RouteUse
from coalloc.safe_text import redact
from coalloc.util.dialer import Dialer

__all__ = ["RouteProbe", "probe_routes"]

log = logging.getLogger(__name__)


class RouteProbe(NamedTuple):
    """The measurement of one route to one server.

    :param use: None if it failed
    """

    url: str
    route: str
    use: RouteUse | None = None
    error: SourceError | None = None


async def probe_routes(
    urls: Sequence[str],
    via: Sequence[str],
    nbytes: int,
    seconds: float,
    broker: str | None = None,
    on_result: Callable[[RouteProbe], None] = lambda _: None,
) -> list[RouteProbe]:
    """Measure the direct route and these routes to the servers of files.

    The results are added to this user's history, and reported to the broker.

    :param via: routes over depots, as in a `Request`; an automatic one stands for one over each known depot
    :param nbytes: maximum bytes of each download
    :param seconds: maximum duration of each download
    :param broker: the broker that knows depots, and gives tickets; None for the user's usual one
    :param on_result: called with each result as it arrives
    :raises UsageError: for an invalid route or URL
    """
    for url in urls:
        if urlsplit(url).scheme not in RELAYED:
            raise UsageError(f"{redact(url)} cannot be reached over depots", f"give {', '.join(RELAYED)} URLs")
    fixed, listed = relayed_dialer(own_policy(), via, broker)
    depots = list(fixed.routes.depots)
    if listed and fixed.routes.some_automatic:
        try:
            depots += await listed()
        except CoallocError as error:
            log.warning("the broker's depots are not measured: %s", error.message)
    probes: list[RouteProbe] = []
    measured: list[MeasuredRoute] = []
    for url in urls:
        host = urlsplit(url).hostname or ""
        chosen = fixed.routes.to(host)
        over = [DepotRoute((depot,), tickets=chosen.tickets) for depot in dict.fromkeys(depots)][:MOST_TRIED]
        for route in (DIRECT, *(over if chosen.automatic else [chosen] if chosen.depots else [])):
            probes.append(await _probe(url, route, fixed.only(route), nbytes, seconds))
            on_result(probes[-1])
            new = _measured(probes[-1], host)
            RouteHistory.open().add(new)
            measured += new
    if known := access(broker):
        await send_results(Broker(known), (), routes=measured)
    return probes


def _measured(probe: RouteProbe, host: str) -> list[MeasuredRoute]:
    return [MeasuredRoute(urlsplit(probe.url).scheme, host, time.time(), probe.use)] if probe.use else []


async def _probe(url: str, route: DepotRoute, dialer: Dialer, nbytes: int, seconds: float) -> RouteProbe:
    host = urlsplit(url).hostname or ""
    meter = RouteMeter(lambda: str(route))
    source = open_source(url, "auto", EngineOptions(dialer))
    began = time.monotonic()
    try:
        stat = await source.open()
        meter.opened(time.monotonic() - began)
        with meter.fetching(lambda *_: None, source) as counted:
            await asyncio.wait_for(source.fetch(Span(0, min(nbytes, stat.size)), counted), seconds)
    except TimeoutError:
        pass
    except SourceError as error:
        return RouteProbe(redact(url), str(route), error=error)
    finally:
        await source.close()
    if dialer.route(host) != str(route):
        failed = Unreachable(f"the route {route} to {host} failed", f"check it with coget doctor --via {route}")
        return RouteProbe(redact(url), str(route), error=failed)
    return RouteProbe(redact(url), str(route), meter.use)
