"""A dialer for engines that connects over depots, and directly where their route fails."""

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import NamedTuple

from coalloc.depot.client import describe, relay
from coalloc.depot.protocol.addresses import HostPort
from coalloc.depot.protocol.failures import DepotFailure
from coalloc.depot.route import DIRECT, DepotRoute, DepotTicket, depot_place
from coalloc.errors import CoallocError, SourceError, Unreachable
from coalloc.util.addresses import ANYWHERE, AddressPolicy
from coalloc.util.dialer import DirectDialer, RelayedSocket, checked

__all__ = ["BestDepotDialer", "DepotRoutes", "RelayedDialer"]

log = logging.getLogger(__name__)

HEAD_START = 1.5
"""Seconds for a route before the direct connection is tried, too."""
CHECK = "check host and port, and that the server is running"
MOST_TRIED = 8
"""Maximum number of depots of which the best is chosen."""
TICKETS = 1800.0
"""Seconds for which tickets are used."""
AGAIN = 30.0
"""Seconds after a failure for which a route is not tried."""


class DepotRoutes(NamedTuple):
    """The routes to servers.

    :param usual: route to servers that have none of their own
    :param by_host: routes to servers by their host, in lower case
    :param depots: depots among which automatic routes choose
    """

    usual: DepotRoute = DIRECT
    by_host: Mapping[str, DepotRoute] = {}
    depots: tuple[HostPort, ...] = ()

    @classmethod
    def parse(
        cls, texts: Sequence[str], tickets: Mapping[HostPort, DepotTicket], depots: Sequence[str] = ()
    ) -> "DepotRoutes":
        """Return the routes in texts of the forms ROUTE and HOST=ROUTE; later ones replace earlier ones.

        :param depots: depots among which automatic routes choose

        >>> DepotRoutes.parse(["depot-a.example", "ftp.example=none"], {}).to("ftp.example").depots
        ()

        :raises ValueError: for another form
        """
        usual, by_host = DIRECT, {}
        for text in texts:
            host, equals, route = text.rpartition("=")
            parsed = DepotRoute.parse(route, tickets)
            if equals:
                by_host[_plain(host)] = parsed
            else:
                usual = parsed
        return cls(usual, by_host, tuple(map(depot_place, depots)))

    @property
    def some_automatic(self) -> bool:
        """Return whether one of the routes is automatic."""
        return self.usual.automatic or any(route.automatic for route in self.by_host.values())

    def to(self, host: str) -> DepotRoute:
        """Return the route to a host."""
        return self.by_host.get(_plain(host), self.usual)


ConnectionTask = asyncio.Task[RelayedSocket] | asyncio.Task[socket.socket]
Completion = Callable[[DepotRoute, str], Awaitable[tuple[DepotRoute, AddressPolicy]]]
"""`await completion(route, host)`: return the route to a host with addresses and tickets of its depots, and the policy
that the depots' addresses must satisfy. Raises a CoallocError if it cannot be completed.
"""


class _CompletedRoutes:
    """Routes with the tickets and addresses of their depots, which are asked for once.

    :param completion: completes routes; None to use them as they are
    """

    def __init__(self, completion: Completion | None) -> None:
        self._completion = completion
        self._known: dict[tuple[str, str], tuple[float, asyncio.Task[tuple[DepotRoute, AddressPolicy]]]] = {}
        """Task that completes each route to a host, and the time until which its result is used."""

    async def relay(self, route: DepotRoute, name: str, to: HostPort, seconds: float) -> RelayedSocket:
        """Connect over a route.

        :param name: host of the server
        :param to: its numeric address and its port
        """
        async with asyncio.timeout(seconds):
            complete, policy = await asyncio.shield(self._complete(route, name))

            async def connect(depot: HostPort) -> socket.socket:
                return await DirectDialer(policy).dial(depot.host, depot.port, seconds)

            sock, legs = await relay(complete, to, connect)
        return RelayedSocket(sock, to, sum(legs))

    def _complete(self, route: DepotRoute, name: str) -> "asyncio.Task[tuple[DepotRoute, AddressPolicy]]":
        """Return the task that completes the route to a host; a new one if its tickets may expire soon."""
        loop, key = asyncio.get_running_loop(), (str(route), name)
        until, task = self._known.get(key, (0.0, None))
        if task is None or loop.time() >= until:
            task = loop.create_task(self._ask(route, name))
            self._known[key] = loop.time() + TICKETS, task
        return task

    async def _ask(self, route: DepotRoute, name: str) -> tuple[DepotRoute, AddressPolicy]:
        if self._completion is None or route.tickets.keys() >= set(route.depots):
            return route, ANYWHERE
        try:
            return await self._completion(route, name)
        except CoallocError as error:
            log.warning("no tickets for the route %s to %s: %s", route, name, error.message)
            return route, ANYWHERE


Listed = Callable[[], Awaitable[Sequence[HostPort]]]
"""`await listed()`: return further depots among which automatic routes choose. Raises a CoallocError."""


class BestDepotDialer(DirectDialer):
    """A dialer that connects over that of several depots which answers first.

    It has no direct route: a source that uses it also has direct sessions.

    :param routes: routes to servers; only those with an automatic one are served
    :param completion: completes routes; None to use them as they are
    :param listed: returns further depots; None if there are only those of the routes
    """

    def __init__(
        self,
        policy: AddressPolicy,
        routes: DepotRoutes,
        completion: Completion | None = None,
        listed: Listed | None = None,
    ) -> None:
        super().__init__(policy)
        self._routes = routes
        self._listed = listed
        self._completing = _CompletedRoutes(completion)
        self._names: dict[str, str] = {}
        """Host of each numeric address, as data connections go to the address."""
        self._best: dict[str, DepotRoute] = {}
        """Route to each host."""

    def serves(self, host: str) -> bool:
        return self._routes.to(host).automatic

    async def dial(self, host: str, port: int, seconds: float) -> socket.socket:
        name, address = self._names.get(host, host), await checked(host, port, self.policy)
        self._names[address] = name
        known = self._best.get(name)
        routes = [known] if known else await self._possible(name)
        loop, to = asyncio.get_running_loop(), HostPort(address, port)
        tasks = [loop.create_task(self._completing.relay(route, name, to, seconds)) for route in routes]
        kept: socket.socket | None = None
        try:
            await _first_success(tasks)
            for route, task in zip(routes, tasks, strict=True):
                if _succeeded(task):
                    self._best[name] = route
                    kept = task.result()
                    return kept
            self._best.pop(name, None)
            raise Unreachable(f"{host}:{port} cannot be reached over any of {len(routes)} depots", CHECK)
        finally:
            await _discard(tasks, kept)

    async def _possible(self, name: str) -> list[DepotRoute]:
        depots, tickets = list(self._routes.depots), self._routes.to(name).tickets
        if self._listed:
            try:
                depots += await self._listed()
            except CoallocError as error:
                log.warning("the broker's depots are not used: %s", error.message)
        return [DepotRoute((depot,), tickets=tickets) for depot in dict.fromkeys(depots[:MOST_TRIED])]


class RelayedDialer(DirectDialer):
    """A dialer that connects over depots.

    The depots get the numeric address of the server, which this machine has looked up and checked. If a route fails, or
    takes long, the server is connected directly, and a warning is logged.

    :param policy: policy that the servers' addresses must satisfy; depots that the user names may have any address
    :param completion: completes routes; None to use them as they are
    :param best: connects to servers with an automatic route that cannot be reached directly
    """

    def __init__(
        self,
        policy: AddressPolicy,
        routes: DepotRoutes,
        completion: Completion | None = None,
        best: BestDepotDialer | None = None,
    ) -> None:
        super().__init__(policy)
        self._routes = routes
        self._best = best
        self._completing = _CompletedRoutes(completion)
        self._names: dict[str, str] = {}
        """Host of each numeric address, as data connections go to the address."""
        self._avoided: dict[str, float] = {}
        """Time until which the route to a host is not tried, because it failed."""

    async def dial(self, host: str, port: int, seconds: float) -> socket.socket:
        name, loop = self._names.get(host, host), asyncio.get_running_loop()
        route = self._routes.to(name)
        if route.automatic and self._best:
            return await self._dial_or_relay(host, port, seconds, self._best)
        if not route.depots or loop.time() < self._avoided.get(name, 0.0):
            return await super().dial(host, port, seconds)
        address = await checked(host, port, self.policy)
        self._names[address] = name
        relayed = loop.create_task(self._relay(name, HostPort(address, port), seconds))
        tasks: list[ConnectionTask] = [relayed]
        kept: socket.socket | None = None
        try:
            await asyncio.wait([relayed], timeout=HEAD_START)
            if _refused_by_server(relayed, route):
                raise Unreachable(f"{host}:{port} refused the connection", CHECK)
            if not _succeeded(relayed):
                tasks.append(loop.create_task(super().dial(host, port, seconds)))
                await _first_success(tasks)
            if not _succeeded(relayed):
                self._avoid(name, f"{_why(relayed, route)}; connecting to {host}:{port} directly")
            kept = await (relayed if _succeeded(relayed) else tasks[-1])
            return kept
        finally:
            await _discard(tasks, kept)

    async def _dial_or_relay(self, host: str, port: int, seconds: float, best: BestDepotDialer) -> socket.socket:
        try:
            return await super().dial(host, port, seconds)
        except Unreachable as error:
            try:
                return await best.under(self.policy).dial(host, port, seconds)
            except SourceError:
                raise error from None

    async def _relay(self, name: str, to: HostPort, seconds: float) -> socket.socket:
        return await self._completing.relay(self._routes.to(name), name, to, seconds)

    def _avoid(self, host: str, why: str) -> None:
        """Log why the route to a host is not used, and do not try it for a while."""
        log.warning("%s", why)
        self._avoided[host] = asyncio.get_running_loop().time() + AGAIN


def _why(relayed: ConnectionTask, route: DepotRoute) -> str:
    error = relayed.exception() if relayed.done() else None
    if isinstance(error, DepotFailure | OSError):
        return describe(error, route)
    return f"depot {error}" if error else f"the route {route} is slow"


def _refused_by_server(relayed: ConnectionTask, route: DepotRoute) -> bool:
    """Return whether the route works, but the server refuses the connection."""
    error = relayed.exception() if relayed.done() else None
    at_end = isinstance(error, DepotFailure) and error.hop == len(route.depots) - 1
    return at_end and error.code == "refused" and not route.loose  # type: ignore[union-attr]


def _succeeded(task: ConnectionTask) -> bool:
    return task.done() and not task.cancelled() and task.exception() is None


async def _first_success(tasks: Sequence[ConnectionTask]) -> None:
    """Wait until one task has succeeded, or all have failed."""
    pending = {task for task in tasks if not task.done()}
    while pending and not any(map(_succeeded, tasks)):
        _, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)


async def _discard(tasks: Sequence[ConnectionTask], kept: socket.socket | None) -> None:
    """Cancel tasks, and close the connections that they have made, except the kept one."""
    for task in tasks:
        task.cancel()
    for made in await asyncio.gather(*tasks, return_exceptions=True):
        if isinstance(made, socket.socket) and made is not kept:
            made.close()


def _plain(host: str) -> str:
    return host.strip("[]").rstrip(".").lower()
