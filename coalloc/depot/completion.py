"""Connections over routes whose depots need tickets, which are asked for once."""

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable, Sequence

from coalloc.depot.client import relay
from coalloc.depot.protocol.addresses import HostPort
from coalloc.depot.route import DepotRoute
from coalloc.errors import CoallocError
from coalloc.util.addresses import ANYWHERE, AddressPolicy
from coalloc.util.dialer import DirectDialer, RelayedSocket

__all__ = ["CompletedRoutes", "Completion", "ConnectionTask", "discard"]

log = logging.getLogger(__name__)

TICKETS = 1800.0
"""Seconds for which tickets are used."""

ConnectionTask = asyncio.Task[RelayedSocket] | asyncio.Task[socket.socket]
Completion = Callable[[DepotRoute, str], Awaitable[tuple[DepotRoute, AddressPolicy]]]
"""`await completion(route, host)`: return the route to a host with addresses and tickets of its depots, and the policy
that the depots' addresses must satisfy. Raises a CoallocError if it cannot be completed.
"""


class CompletedRoutes:
    """Routes with the tickets and addresses of their depots, which are asked for once.

    :param completion: completes routes; None to use them as they are
    """

    def __init__(self, completion: Completion | None) -> None:
        self._completion = completion
        self._known: dict[tuple[str, str], tuple[float, asyncio.Task[tuple[DepotRoute, AddressPolicy]]]] = {}
        """Task that completes each route to a host, and the time until which its result is used."""

    async def relay(
        self, route: DepotRoute, name: str, to: HostPort, seconds: float, first: bytes = b""
    ) -> RelayedSocket:
        """Connect over a route.

        :param name: host of the server
        :param to: its numeric address and its port
        :param first: first bytes for the server
        """
        loop = asyncio.get_running_loop()
        began = loop.time()
        async with asyncio.timeout(seconds):
            complete, policy = await self.complete(route, name)

            async def connect(depot: HostPort) -> socket.socket:
                return await DirectDialer(policy).dial(depot.host, depot.port, seconds)

            sock, legs = await relay(complete, to, connect, first)
        took = loop.time() - began
        return RelayedSocket(sock, to, legs if sum(legs) < took else (took,))  # whatever the depots claim

    async def complete(self, route: DepotRoute, name: str) -> tuple[DepotRoute, AddressPolicy]:
        """Return a route with tickets and addresses, and the policy that the depots' addresses must satisfy."""
        return await asyncio.shield(self._task(route, name))

    def _task(self, route: DepotRoute, name: str) -> "asyncio.Task[tuple[DepotRoute, AddressPolicy]]":
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


async def discard(tasks: Sequence[ConnectionTask], kept: socket.socket | None) -> None:
    """Cancel tasks, and close the connections that they have made, except the kept one."""
    for task in tasks:
        task.cancel()
    for made in await asyncio.gather(*tasks, return_exceptions=True):
        if isinstance(made, socket.socket) and made is not kept:
            made.close()
