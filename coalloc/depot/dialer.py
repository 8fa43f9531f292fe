"""A dialer for engines that connects over depots, and directly where their route fails."""

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from coalloc.depot.client import describe
from coalloc.depot.completion import AGAIN, CompletedRoutes, Completion, ConnectionTask, discard
from coalloc.depot.protocol.addresses import HostPort
from coalloc.depot.protocol.failures import DepotFailure
from coalloc.depot.route import DIRECT, DepotRoute, DepotTicket, depot_of
from coalloc.errors import CoallocError, Unreachable
from coalloc.util import trace
from coalloc.util.addresses import AddressPolicy
from coalloc.util.concurrency import first_success, succeeded
from coalloc.util.dialer import DirectDialer, checked

__all__ = ["NO_TIMES", "DepotRoutes", "RelayedDialer", "RouteTimes", "refused_by_server", "why"]

log = logging.getLogger(__name__)

HEAD_START = 1.5
"""Seconds for a route before the direct connection is tried, too."""
CHECK = "check host and port, and that the server is running"

AskTimes = Callable[[Sequence[str]], Awaitable[Mapping[str, Mapping[str, float]]]]
"""`await ask(hosts)`: return the expected times of the routes to hosts, as in `RouteTimes`. Raises a CoallocError."""
PATIENCE = 1.0
"""Maximum seconds to wait for these times before a transfer."""


class RouteTimes:
    """The expected seconds of a small file from each host over each route.

    :param known: times by host and route, from this user's history
    :param ask: asks for those of other hosts; None if they are not available
    """

    def __init__(self, known: Mapping[str, Mapping[str, float]], ask: AskTimes | None = None) -> None:
        self._known = dict(known)
        self._ask = ask
        self._asked: set[str] = set()

    def to(self, host: str) -> Mapping[str, float]:
        """Return the times by route."""
        return self._known.get(host, {})

    async def learn(self, hosts: Iterable[str]) -> None:
        """Ask for the times of hosts of which fewer than two routes are known; without an answer, they stay unknown."""
        unknown = [host for host in dict.fromkeys(hosts) if len(self.to(host)) < 2 and host not in self._asked]
        if self._ask is None or not unknown:
            return
        self._asked.update(unknown)
        try:
            async with asyncio.timeout(PATIENCE):
                for host, times in (await self._ask(unknown)).items():
                    self._known[host] = {**times, **self.to(host)}
        except TimeoutError:
            log.info("the expected times of routes did not arrive in time")
        except CoallocError as error:
            log.info("no expected times of routes: %s", error.message)


NO_TIMES = RouteTimes({})


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
        """Return the routes in strings of the forms ROUTE and HOST=ROUTE; later ones replace earlier ones.

        :param depots: depots among which automatic routes choose

        >>> DepotRoutes.parse(["depot-a.example", "ftp.example=none"], {}).to("ftp.example").depots
        ()

        :raises ValueError: for any other form
        """
        usual, by_host = DIRECT, {}
        for text in texts:
            host, equals, route = text.rpartition("=")
            parsed = DepotRoute.parse(route, tickets)
            if equals:
                by_host[_checked(host)] = parsed
            else:
                usual = parsed
        return cls(usual, by_host, tuple(map(depot_of, depots)))

    @property
    def some_automatic(self) -> bool:
        """Return whether one of the routes is automatic."""
        return self.usual.automatic or any(route.automatic for route in self.by_host.values())

    def to(self, host: str) -> DepotRoute:
        """Return the route to a host."""
        return self.by_host.get(_plain(host), self.usual)


class RelayedDialer(DirectDialer):
    """A dialer that connects over depots.

    The depots get the numeric address of the server, which this machine has looked up and checked. If a route fails, or
    has not connected after `HEAD_START` seconds, the dialer also connects directly, and keeps the first connection. If
    that is the direct one, it logs a warning, and avoids the route for `AGAIN` seconds. It does not connect directly if
    the server itself has refused the connection.

    :param policy: policy that the servers' addresses must satisfy; depots that the user names may have any address
    :param routes: route to each host
    :param completion: completes routes; None to use them as they are
    :param times: expected times of small files
    """

    def __init__(
        self,
        policy: AddressPolicy,
        routes: DepotRoutes,
        completion: Completion | None = None,
        times: RouteTimes = NO_TIMES,
    ) -> None:
        super().__init__(policy)
        self.routes = routes
        self.times = times
        self.completed = CompletedRoutes(completion)
        self._names: dict[str, str] = {}
        """Host of each numeric address, as data connections go to the address."""
        self._avoided: dict[str, float] = {}
        """Time until which the route to a host is not tried, because it failed."""
        self._taken: dict[str, str] = {}
        """Last route to each host."""

    async def route_to(self, host: str) -> tuple[DepotRoute, AddressPolicy]:
        """Return the completed route to a host, and the policy that the depots' addresses must satisfy."""
        return await self.completed.complete(self.routes.to(host), host)

    def only(self, route: DepotRoute) -> "RelayedDialer":
        """Return a dialer that takes a route to all servers, with the tickets of this one."""
        other = RelayedDialer(self.policy, DepotRoutes(route), times=self.times)
        other.completed = self.completed
        return other

    def route(self, host: str) -> str:
        usual = self.routes.to(host)
        return self._taken.get(host, str(usual if usual.depots else DIRECT))

    def expected(self, host: str) -> float | None:
        return self.times.to(host).get(self.route(host))

    async def dial(self, host: str, port: int, seconds: float, first: bytes = b"") -> socket.socket:
        name, loop = self._names.get(host, host), asyncio.get_running_loop()
        route = self.routes.to(name)
        if not route.depots or loop.time() < self._avoided.get(name, 0.0):
            self._taken[name] = str(DIRECT)
            return await super().dial(host, port, seconds, first)
        trace.asked(f"{host}:{port}", f"connect over {route}")
        address = await checked(host, port, self.policy)
        self._names[address] = name
        relayed = loop.create_task(self._relay(name, HostPort(address, port), seconds, first))
        tasks: list[ConnectionTask] = [relayed]
        kept: socket.socket | None = None
        try:
            await asyncio.wait([relayed], timeout=HEAD_START)
            if refused_by_server(relayed, route):
                raise Unreachable(f"{host}:{port} refused the connection", CHECK)
            if not succeeded(relayed):
                tasks.append(loop.create_task(super().dial(host, port, seconds, first)))
                await first_success(tasks)
            if not succeeded(relayed):
                self._avoid(name, f"{why(relayed, route)}; connecting to {host}:{port} directly")
            kept = await (relayed if succeeded(relayed) else tasks[-1])
            self._taken[name] = str(route if succeeded(relayed) else DIRECT)
            return kept
        finally:
            await discard(tasks, kept)

    async def _relay(self, name: str, to: HostPort, seconds: float, first: bytes) -> socket.socket:
        return await self.completed.relay(self.routes.to(name), name, to, seconds, first)

    def _avoid(self, host: str, why: str) -> None:
        """Log why the route to a host is not used, and do not try it for a while."""
        log.warning("%s", why)
        self._avoided[host] = asyncio.get_running_loop().time() + AGAIN


def why(relayed: ConnectionTask, route: DepotRoute) -> str:
    """Return why a route is not used."""
    error = relayed.exception() if relayed.done() else None
    if isinstance(error, DepotFailure | OSError):
        return describe(error, route)
    return f"depot {error}" if error else f"the route {route} is slow"


def refused_by_server(relayed: ConnectionTask, route: DepotRoute) -> bool:
    """Return whether the route works, but the server refuses the connection."""
    error = relayed.exception() if relayed.done() else None
    if not isinstance(error, DepotFailure) or route.loose:
        return False
    return error.code == "refused" and error.hop == len(route.depots) - 1


def _checked(host: str) -> str:
    """Return a plain host; a port would never match, as all ports of a host have the same route."""
    return _plain(HostPort.of(host.strip("[]"), 1).host)


def _plain(host: str) -> str:
    return host.strip("[]").rstrip(".").lower()
