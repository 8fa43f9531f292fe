"""Routes of the data connections between two servers, for copies whose bytes do not pass this machine.

A depot opens a port for one of the servers, and relays what connects there to the other one (`daemon.ports`).
"""

import asyncio
import logging
import socket
from typing import NamedTuple

from coalloc.depot.client import describe, open_port
from coalloc.depot.completion import AGAIN, CompletedRoutes, Completion
from coalloc.depot.dialer import DepotRoutes
from coalloc.depot.protocol.addresses import HostPort
from coalloc.depot.protocol.failures import DepotFailure
from coalloc.depot.protocol.session_header import MOST_CONNECTIONS, Answer, PortRequest
from coalloc.depot.route import DepotRoute
from coalloc.errors import CoallocError
from coalloc.util.addresses import AddressPolicy, class_of
from coalloc.util.dialer import DirectDialer

__all__ = ["DataRoutes", "DepotPort"]

log = logging.getLogger(__name__)

OPEN_SECONDS = 5.0
"""Seconds for a depot to open a port, before the servers connect to each other directly."""
LONGEST = 8192
"""Bytes to read of a depot's answers; two answers are shorter."""


class DepotPort(NamedTuple):
    """A port at a depot, until it is closed.

    :param session: session with the depot, at whose end the depot closes the port
    :param host: numeric address of the depot
    """

    route: DepotRoute
    session: socket.socket
    host: str
    port: int

    @property
    def is_open(self) -> bool:
        """Return whether the port is open, and the depot has reported no failure, as far as is known."""
        try:
            self.session.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return True
        except OSError:
            pass
        return False

    def trouble(self) -> str:
        """Return the depot's message about connections that it could not relay; empty if there is none."""
        try:
            data = self.session.recv(LONGEST)
            answer = Answer.decode(data) if data and not Answer.missing(data) else None
        except BlockingIOError:
            return ""
        except (OSError, DepotFailure):
            answer = None
        failure = (answer and answer.failure) or DepotFailure("closing", "it has closed the port", 0)
        return describe(failure, self.route)

    def close(self) -> None:
        """Close the port; may be called twice."""
        self.session.close()


class DataRoutes:
    """The routes of data connections to servers.

    :param routes: routes by the host of the server to connect to
    :param completion: completes routes; None to use them as they are
    :raises ValueError: for a route other than one depot, or none
    """

    def __init__(self, routes: DepotRoutes, completion: Completion | None = None) -> None:
        for route in (routes.usual, *routes.by_host.values()):
            if route.automatic or route.loose or len(route.depots) > 1:
                raise ValueError(f"{route} is not a single depot: data connections between servers go over one or none")
        self._routes = routes
        self._completed = CompletedRoutes(completion)
        self._avoided: dict[str, tuple[float, str]] = {}
        """Time until which the route to a host is not used, because it failed, and why."""

    @property
    def some(self) -> bool:
        """Return whether one of the routes goes over a depot."""
        return any(route.depots for route in (self._routes.usual, *self._routes.by_host.values()))

    def why_direct(self, host: str) -> str:
        """Return why the route to a host is not used now; empty if it is, or if it is the direct one."""
        until, why = self._avoided.get(host, (0.0, ""))
        return why if asyncio.get_running_loop().time() < until else ""

    def last_failure(self, host: str) -> str:
        """Return why the route to a host failed last; empty if it has not failed."""
        return self._avoided.get(host, (0.0, ""))[1]

    def avoid(self, host: str, why: str) -> None:
        """Log why the route to a host is not used, and do not use it for a while."""
        log.warning("%s; servers connect to %s directly", why, host)
        self._avoided[host] = asyncio.get_running_loop().time() + AGAIN, why

    async def port(self, host: str, to: HostPort, peer: str, connections: int) -> DepotPort | None:
        """Open a port at the depot on the route to a server; return None if servers must connect to it directly.

        :param host: the server's name
        :param to: numeric address and port at which the server listens
        :param peer: numeric address of the server that will connect
        :param connections: number of its connections at once
        """
        route = self._routes.to(host)
        if not route.depots or self.why_direct(host):
            return None
        wanted = PortRequest(peer, min(connections, MOST_CONNECTIONS))
        try:
            async with asyncio.timeout(OPEN_SECONDS):
                return await self._opened(route, host, to, wanted)
        except (DepotFailure, OSError) as error:
            self.avoid(host, describe(error, route))
        except ValueError as error:  # the ticket is too long for the header
            self.avoid(host, f"depot {route}: {error}")
        except CoallocError as error:
            self.avoid(host, f"depot {error.message}")
        return None

    async def _opened(self, route: DepotRoute, host: str, to: HostPort, wanted: PortRequest) -> DepotPort:
        async def attempt(complete: DepotRoute, policy: AddressPolicy) -> DepotPort:
            async def connect(depot: HostPort) -> socket.socket:
                return await DirectDialer(policy).dial(depot.host, depot.port, OPEN_SECONDS)

            sock, port = await open_port(complete, to, wanted, connect)
            address = str(sock.getpeername()[0])  # whatever the depot answers: servers are led to no other host
            if class_of(address) > class_of(wanted.peer):
                sock.close()
                why = f"{wanted.peer} cannot connect to {address}, an internal address"
                raise DepotFailure("unreachable", why, 0)
            return DepotPort(complete, sock, address, port)

        return await self._completed.use(route, host, attempt)
