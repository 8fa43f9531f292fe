"""Automatic routes: the best depot to each server, for the sessions that do not connect directly.

The sessions with a replica take the direct route and the one over the best depot in turn. The best depot is the one
with the shortest expected time, and else the one that answers first.
"""

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable, Sequence

from coalloc.depot.completion import CompletedRoutes, discard
from coalloc.depot.dialer import DepotRoutes, RouteTimes
from coalloc.depot.protocol.addresses import HostPort
from coalloc.depot.route import CHOSEN, DepotRoute
from coalloc.errors import CoallocError, Unreachable
from coalloc.model import DIRECTLY
from coalloc.util.addresses import AddressPolicy
from coalloc.util.concurrency import first_success, succeeded
from coalloc.util.dialer import DirectDialer, checked

__all__ = ["BestDepotDialer", "Listed"]

log = logging.getLogger(__name__)

Listed = Callable[[], Awaitable[Sequence[HostPort]]]
"""`await listed()`: return further depots among which automatic routes choose. Raises a CoallocError."""

MOST_TRIED = 8
"""Maximum number of depots of which the best is chosen."""


class BestDepotDialer(DirectDialer):
    """A dialer that connects over the best depot, for servers whose route is automatic.

    :param policy: policy that the servers' addresses must satisfy
    :param routes: routes to servers
    :param completed: completes routes
    :param times: expected times of small files
    :param listed: returns further depots; None if there are only those of the routes
    """

    def __init__(
        self,
        policy: AddressPolicy,
        routes: DepotRoutes,
        completed: CompletedRoutes,
        times: RouteTimes,
        listed: Listed | None = None,
    ) -> None:
        super().__init__(policy)
        self._routes = routes
        self._completed = completed
        self._times = times
        self._listed = listed
        self._names: dict[str, str] = {}
        """Host of each numeric address, as data connections go to the address."""
        self._best: dict[str, DepotRoute] = {}
        self._failed: set[tuple[str, str]] = set()
        """Hosts and routes to them that have failed."""

    def serves(self, host: str) -> bool:
        return self._routes.to(host).automatic

    def route(self, host: str) -> str:
        if best := self._best.get(host):
            return str(best)
        times = self._known_times(host)
        return min(times, key=times.__getitem__, default=CHOSEN)

    def expected(self, host: str) -> float | None:
        return min(self._known_times(host).values(), default=None)

    def _known_times(self, host: str) -> dict[str, float]:
        """Return the expected times over depots that may be candidates, and have not failed."""
        named = set(map(str, self._routes.depots))
        return {
            route: seconds
            for route, seconds in self._times.to(host).items()
            if (route in named or (self._listed and route != DIRECTLY)) and (host, route) not in self._failed
        }

    async def dial(self, host: str, port: int, seconds: float, first: bytes = b"") -> socket.socket:
        name, address = self._names.get(host, host), await checked(host, port, self.policy)
        self._names[address] = name
        to, known = HostPort(address, port), self._best.get(name)
        routes = [known] if known else await self._candidates(name)
        loop, alone = asyncio.get_running_loop(), len(routes) == 1
        tasks = [
            loop.create_task(self._completed.relay(route, name, to, seconds, first if alone else b""))
            for route in routes
        ]
        kept: socket.socket | None = None
        try:
            await first_success(tasks)
            for route, task in zip(routes, tasks, strict=True):
                if succeeded(task):
                    self._best[name], kept = route, task.result()
                    break
            if kept is None:
                self._best.pop(name, None)
                self._failed.update((name, str(route)) for route in routes)
                raise Unreachable(
                    f"{host}:{port} cannot be reached over any of {len(routes)} depots",
                    "check them with coget doctor --via",
                )
            if not alone:
                await loop.sock_sendall(kept, first)
            return kept
        except BaseException:
            kept = None
            raise
        finally:
            await discard(tasks, kept)

    async def _candidates(self, name: str) -> list[DepotRoute]:
        """Return the depot with the shortest expected time; if there is none, all depots."""
        depots, tickets = list(self._routes.depots), self._routes.to(name).tickets
        if self._listed:
            try:
                depots += await self._listed()
            except CoallocError as error:
                log.warning("the broker's depots are not used: %s", error.message)
        routes = [DepotRoute((depot,), tickets=tickets) for depot in dict.fromkeys(depots)]
        times = self._known_times(name)
        known = [route for route in routes if str(route) in times]
        return [min(known, key=lambda route: times[str(route)])] if known else routes[:MOST_TRIED]
