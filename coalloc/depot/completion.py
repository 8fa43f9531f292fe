"""Connections over routes whose depots need tickets, which are asked for once."""

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from coalloc.depot.client import relay
from coalloc.depot.protocol.addresses import HostPort
from coalloc.depot.protocol.failures import DepotFailure
from coalloc.depot.route import DepotRoute
from coalloc.errors import CoallocError
from coalloc.util.addresses import ANYWHERE, AddressPolicy
from coalloc.util.dialer import DirectDialer, RelayedSocket

__all__ = ["AGAIN", "CompletedRoutes", "Completion", "ConnectionTask", "discard"]

log = logging.getLogger(__name__)

TICKETS = 1800.0
"""Seconds for which tickets are used."""
AGAIN = 30.0
"""Seconds after a failure for which a route is not tried, or tickets for it are not asked for."""

Result = TypeVar("Result")
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
        self._tasks: dict[tuple[str, str], asyncio.Task[tuple[DepotRoute, AddressPolicy]]] = {}
        """Task that completes each route to a host."""
        self._until: dict[tuple[str, str], float] = {}
        """Time until which its result is used."""

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

        async def attempt(complete: DepotRoute, policy: AddressPolicy) -> tuple[socket.socket, tuple[float, ...]]:
            async def connect(depot: HostPort) -> socket.socket:
                return await DirectDialer(policy).dial(depot.host, depot.port, seconds)

            return await relay(complete, to, connect, first)

        async with asyncio.timeout(seconds):
            sock, legs = await self.use(route, name, attempt)
        took = loop.time() - began
        return RelayedSocket(sock, to, legs if sum(legs) < took else (took,))  # whatever the depots claim

    async def use(
        self, route: DepotRoute, name: str, attempt: Callable[[DepotRoute, AddressPolicy], Awaitable[Result]]
    ) -> Result:
        """Return the result of an attempt with a completed route, or with new tickets if a depot refuses one.

        :param name: host of the server
        :param attempt: `await attempt(route, policy)` uses the completed route; called at most twice
        """
        task = self._task(route, name)
        known = await asyncio.shield(task)
        try:
            return await attempt(*known)
        except DepotFailure as failure:
            if failure.code != "ticket" or not known[0].tickets:
                raise
            if self._tasks.get((str(route), name)) is task:  # else another connection has asked for new ones
                del self._tasks[str(route), name]
            new = await self.complete(route, name)
            if new == known:
                raise
            return await attempt(*new)

    async def complete(self, route: DepotRoute, name: str) -> tuple[DepotRoute, AddressPolicy]:
        """Return a route with tickets and addresses, and the policy that the depots' addresses must satisfy."""
        return await asyncio.shield(self._task(route, name))

    def _task(self, route: DepotRoute, name: str) -> "asyncio.Task[tuple[DepotRoute, AddressPolicy]]":
        """Return the task that completes the route to a host; a new one if its tickets may expire soon."""
        loop, key = asyncio.get_running_loop(), (str(route), name)
        task = self._tasks.get(key)
        if task is None or (task.done() and loop.time() >= self._until.get(key, 0.0)):
            task = self._tasks[key] = loop.create_task(self._ask(route, name))
        return task

    async def _ask(self, route: DepotRoute, name: str) -> tuple[DepotRoute, AddressPolicy]:
        if self._completion is None or route.tickets.keys() >= set(route.depots):
            return route, ANYWHERE
        complete, seconds = (route, ANYWHERE), AGAIN
        try:
            complete, seconds = await self._completion(route, name), TICKETS
        except CoallocError as error:
            log.warning("no tickets for the route %s to %s: %s", route, name, error.message)
        self._until[str(route), name] = asyncio.get_running_loop().time() + seconds
        return complete


async def discard(tasks: Sequence[ConnectionTask], kept: socket.socket | None) -> None:
    """Cancel tasks, and close the connections that they have made, except the kept one."""
    for task in tasks:
        task.cancel()
    for made in await asyncio.gather(*tasks, return_exceptions=True):
        if isinstance(made, socket.socket) and made is not kept:
            made.close()
