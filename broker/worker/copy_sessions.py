"""A pool of sessions that copy from one server to another."""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable
from contextlib import AbstractContextManager, asynccontextmanager
from typing import NamedTuple

from broker.services.collections.trees.gridftp import ServerLogin
from broker.worker.copy_routes import CopyRoutes
from broker.worker.policy.faults import at_destination, at_source
from coalloc.api import DataRoutes, Storage, ThirdParty, storage, third_party
from coalloc.util.concurrency import gather

__all__ = ["CopyEnds", "Route", "Routes"]

IDLE_SECONDS = 30.0


class CopyEnds(NamedTuple):
    """The two servers of a copy, and the number of parallel streams."""

    source: ServerLogin
    sink: ServerLogin
    parallelism: int


class Route(NamedTuple):
    """A pair of sessions for copies, and another session with each server for all other commands."""

    pair: ThirdParty
    source: Storage
    sink: Storage

    @property
    def usable(self) -> bool:
        """Return whether all sessions of the route are usable."""
        return self.pair.usable and self.source.usable and self.sink.usable

    def close(self) -> None:
        """Close all sessions; may be called twice."""
        for each in self:
            each.close()


class Routes:
    """The routes of one process. One lane at a time uses a route; idle routes are closed after `IDLE_SECONDS`.

    :param depots: routes of the data over depots
    """

    def __init__(self, depots: CopyRoutes) -> None:
        self.depots = depots
        self._idle: defaultdict[CopyEnds, list[tuple[Route, asyncio.TimerHandle]]] = defaultdict(list)

    @asynccontextmanager
    async def one(self, ends: CopyEnds) -> AsyncIterator[Route]:
        """Yield a route for exclusive use: an idle one if it is usable, otherwise a new one.

        :raises SourceError: when a server refuses the login
        """
        route = self._take(ends) or await _open(ends, self.depots.via)
        try:
            yield route
        finally:
            if route.usable:
                timer = asyncio.get_running_loop().call_later(IDLE_SECONDS, self._drop, ends, route)
                self._idle[ends].append((route, timer))
            else:
                route.close()

    def _take(self, ends: CopyEnds) -> Route | None:
        while self._idle[ends]:
            route, timer = self._idle[ends].pop()
            timer.cancel()
            if route.usable:
                return route
            route.close()
        return None

    def _drop(self, ends: CopyEnds, route: Route) -> None:
        self._idle[ends] = [each for each in self._idle[ends] if each[0] is not route]
        route.close()

    def close(self) -> None:
        """Close the routes that are not in use."""
        for idle in self._idle.values():
            for route, timer in idle:
                timer.cancel()
                route.close()
        self._idle.clear()


async def _marked(side: AbstractContextManager[None], opening: Awaitable[Storage]) -> Storage:
    with side:
        return await opening


async def _open(ends: CopyEnds, via: DataRoutes | None) -> Route:
    """Open the sessions of a route concurrently, since each takes several round trips."""
    source, sink = f"{ends.source.source}/", f"{ends.sink.source}/"
    proxies = ends.source.proxy, ends.sink.proxy
    allowed = ends.sink.allowed
    pair = asyncio.ensure_future(third_party(source, sink, proxies, ends.parallelism, via=via, **allowed))
    sending = asyncio.ensure_future(_marked(at_source(), storage(source, ends.source.proxy, **allowed)))
    receiving = asyncio.ensure_future(_marked(at_destination(), storage(sink, ends.sink.proxy, **allowed)))
    try:
        await gather(sending, receiving, pair)
        return Route(pair.result(), sending.result(), receiving.result())
    except BaseException:
        for each in (pair, sending, receiving):
            each.cancel()
        for opened in await asyncio.gather(pair, sending, receiving, return_exceptions=True):
            if isinstance(opened, Storage | ThirdParty):
                opened.close()
        raise
