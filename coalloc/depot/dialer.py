"""A dialer for engines that connects over depots, and directly where their route fails."""

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import NamedTuple

from coalloc.depot.client import describe, relay
from coalloc.depot.protocol.addresses import HostPort
from coalloc.depot.protocol.failures import DepotFailure
from coalloc.depot.route import DIRECT, DepotRoute, DepotTicket
from coalloc.errors import CoallocError, Unreachable
from coalloc.util.addresses import ANYWHERE, AddressPolicy
from coalloc.util.dialer import DirectDialer, RelayedSocket, checked

__all__ = ["DepotRoutes", "RelayedDialer"]

log = logging.getLogger(__name__)

HEAD_START = 1.5
"""Seconds for a route before the direct connection is tried, too."""
CHECK = "check host and port, and that the server is running"
TICKETS = 1800.0
"""Seconds for which tickets are used."""
AGAIN = 30.0
"""Seconds after a failure for which a route is not tried."""


class DepotRoutes(NamedTuple):
    """The routes to servers.

    :param usual: route to servers that have none of their own
    :param by_host: routes to servers by their host, in lower case
    """

    usual: DepotRoute = DIRECT
    by_host: Mapping[str, DepotRoute] = {}

    @classmethod
    def parse(cls, texts: Sequence[str], tickets: Mapping[HostPort, DepotTicket]) -> "DepotRoutes":
        """Return the routes in texts of the forms ROUTE and HOST=ROUTE; later ones replace earlier ones.

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
        return cls(usual, by_host)

    def to(self, host: str) -> DepotRoute:
        """Return the route to a host."""
        return self.by_host.get(_plain(host), self.usual)


Completion = Callable[[DepotRoute, str], Awaitable[tuple[DepotRoute, AddressPolicy]]]
"""`await completion(route, host)`: return the route to a host with addresses and tickets of its depots, and the policy
that the depots' addresses must satisfy. Raises a CoallocError if it cannot be completed.
"""


class RelayedDialer(DirectDialer):
    """A dialer that connects over depots.

    The depots get the numeric address of the server, which this machine has looked up and checked. If a route fails, or
    takes long, the server is connected directly, and a warning is logged.

    :param policy: policy that the servers' addresses must satisfy; depots that the user names may have any address
    :param completion: completes routes; None to use them as they are
    """

    def __init__(self, policy: AddressPolicy, routes: DepotRoutes, completion: Completion | None = None) -> None:
        super().__init__(policy)
        self._routes = routes
        self._completion = completion
        self._completed: dict[str, tuple[float, asyncio.Task[tuple[DepotRoute, AddressPolicy]]]] = {}
        """Completed route to each host, and the time until which it is used."""
        self._names: dict[str, str] = {}
        """Host of each numeric address, as data connections go to the address."""
        self._avoided: dict[str, float] = {}
        """Time until which the route to a host is not tried, because it failed."""

    async def dial(self, host: str, port: int, seconds: float) -> socket.socket:
        name, loop = self._names.get(host, host), asyncio.get_running_loop()
        route = self._routes.to(name)
        if not route.depots or loop.time() < self._avoided.get(name, 0.0):
            return await super().dial(host, port, seconds)
        address = await checked(host, port, self.policy)
        self._names[address] = name
        relayed = loop.create_task(self._relay(name, HostPort(address, port), seconds))
        tasks, kept = [relayed], None
        try:
            await asyncio.wait([relayed], timeout=HEAD_START)
            if _refused_by_server(relayed, route):
                raise Unreachable(f"{host}:{port} refused the connection", CHECK)
            if not _succeeded(relayed):
                tasks.append(loop.create_task(super().dial(host, port, seconds)))
                await _first_success(tasks)
            if not _succeeded(relayed):
                self._avoid(name, f"{_why(relayed, route)}; connecting to {host}:{port} directly")
            sock = await (relayed if _succeeded(relayed) else tasks[-1])
            kept = sock
            return sock
        finally:
            await _discard(tasks, kept)

    async def _relay(self, name: str, to: HostPort, seconds: float) -> socket.socket:
        async with asyncio.timeout(seconds):
            route, policy = await asyncio.shield(self._complete(name))

            async def connect(depot: HostPort) -> socket.socket:
                return await DirectDialer(policy).dial(depot.host, depot.port, seconds)

            sock, legs = await relay(route, to, connect)
        return RelayedSocket(sock, to, sum(legs))

    def _complete(self, name: str) -> "asyncio.Task[tuple[DepotRoute, AddressPolicy]]":
        """Return the task that completes the route to a host; a new one if its tickets may expire soon."""
        loop = asyncio.get_running_loop()
        until, task = self._completed.get(name, (0.0, None))
        if task is None or loop.time() >= until:
            task = loop.create_task(self._ask(self._routes.to(name), name))
            self._completed[name] = loop.time() + TICKETS, task
        return task

    async def _ask(self, route: DepotRoute, name: str) -> tuple[DepotRoute, AddressPolicy]:
        if self._completion is None or route.tickets.keys() >= set(route.depots):
            return route, ANYWHERE
        try:
            return await self._completion(route, name)
        except CoallocError as error:
            log.warning("no tickets for the route %s to %s: %s", route, name, error.message)
            return route, ANYWHERE

    def _avoid(self, host: str, why: str) -> None:
        """Log why the route to a host is not used, and do not try it for a while."""
        log.warning("%s", why)
        self._avoided[host] = asyncio.get_running_loop().time() + AGAIN


def _why(relayed: "asyncio.Task[socket.socket]", route: DepotRoute) -> str:
    error = relayed.exception() if relayed.done() else None
    if isinstance(error, DepotFailure | OSError):
        return describe(error, route)
    return f"depot {error}" if error else f"the route {route} is slow"


def _refused_by_server(relayed: "asyncio.Task[socket.socket]", route: DepotRoute) -> bool:
    """Return whether the route works, but the server refuses the connection."""
    error = relayed.exception() if relayed.done() else None
    at_end = isinstance(error, DepotFailure) and error.hop == len(route.depots) - 1
    return at_end and error.code == "refused" and not route.loose  # type: ignore[union-attr]


def _succeeded(task: "asyncio.Task[socket.socket]") -> bool:
    return task.done() and not task.cancelled() and task.exception() is None


async def _first_success(tasks: Sequence["asyncio.Task[socket.socket]"]) -> None:
    """Wait until one task has succeeded, or all have failed."""
    pending = {task for task in tasks if not task.done()}
    while pending and not any(map(_succeeded, tasks)):
        _, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)


async def _discard(tasks: Sequence["asyncio.Task[socket.socket]"], kept: socket.socket | None) -> None:
    """Cancel tasks, and close the connections that they have made, except the kept one."""
    for task in tasks:
        task.cancel()
    for made in await asyncio.gather(*tasks, return_exceptions=True):
        if isinstance(made, socket.socket) and made is not kept:
            made.close()


def _plain(host: str) -> str:
    return host.strip("[]").rstrip(".").lower()
