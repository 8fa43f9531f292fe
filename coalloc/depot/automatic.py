"""The automatic choice between the direct route to a server and one over a depot, both of which are used.

The first session with a replica takes the better route, the next one the other, and so on. The route over a depot is
the better one if its longest leg has a much shorter round trip than the direct route, without a long detour: TCP then
raises its rate, and recovers from losses, in less time. Otherwise the direct route is. Which of them is faster shows
in the rates of their sessions.

Source: the paper on the logistical session layer, section 3.1.
"""

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable, Sequence
from typing import Literal

from coalloc.depot.completion import CompletedRoutes, ConnectionTask, discard, first_success, succeeded
from coalloc.depot.dialer import DepotRoutes
from coalloc.depot.protocol.addresses import HostPort
from coalloc.depot.route import DepotRoute
from coalloc.errors import CoallocError, SourceError, Unreachable
from coalloc.util.addresses import AddressPolicy
from coalloc.util.dialer import DirectDialer, RelayedSocket, checked, round_trip

__all__ = ["AutomaticDialer", "AutomaticRoutes", "is_shorter"]

log = logging.getLogger(__name__)

Kind = Literal["direct", "depot"]
Listed = Callable[[], Awaitable[Sequence[HostPort]]]
"""`await listed()`: return further depots among which automatic routes choose. Raises a CoallocError."""

MOST_TRIED = 8
"""Maximum number of depots of which the best is chosen."""
SHORTER = 0.8
"""Maximum ratio of the longest leg's round-trip time to that of the direct route, for the depot to be preferred."""
DETOUR = 1.15
"""The same for the sum of all legs."""
PATIENCE = 2.5
"""Time for the answer of a depot nearer than the server, as a ratio to the time of the direct connection."""


def is_shorter(direct: float, legs: Sequence[float]) -> bool:
    """Return whether TCP should be faster over these legs, from round-trip times in seconds.

    >>> is_shorter(0.106, [0.075, 0.0025]), is_shorter(0.106, [0.100, 0.030]), is_shorter(0.090, [0.06, 0.06])
    (True, False, False)
    """
    return max(legs) <= SHORTER * direct and sum(legs) <= DETOUR * direct


class AutomaticRoutes:
    """The known routes to all hosts, which the dialers of a transfer share.

    :param routes: routes to servers; only those with an automatic one are served
    :param completed: completes routes
    :param listed: returns further depots; None if there are only those of the routes
    """

    def __init__(self, routes: DepotRoutes, completed: CompletedRoutes, listed: Listed | None = None) -> None:
        self.routes = routes
        self._completed = completed
        self._listed = listed
        self.names: dict[str, str] = {}
        """Host of each numeric address, as data connections go to the address."""
        self._best: dict[str, DepotRoute] = {}
        self._order: dict[str, asyncio.Future[tuple[Kind, Kind]]] = {}
        """Routes to each host, the better one first, once they are known."""

    def order(self, name: str) -> "asyncio.Future[tuple[Kind, Kind]]":
        """Return the future order of the routes to a host."""
        return self._order.setdefault(name, asyncio.get_running_loop().create_future())

    async def relay(
        self, name: str, to: HostPort, seconds: float, reached: Callable[[], None] = lambda: None
    ) -> RelayedSocket:
        """Connect over the best depot: the one that answered first.

        :param reached: called once a depot is connected
        :raises Unreachable: if there is no depot that answers
        """
        known = self._best.get(name)
        routes = [known] if known else await self._possible(name)
        loop = asyncio.get_running_loop()
        tasks = [loop.create_task(self._completed.relay(route, name, to, seconds, reached)) for route in routes]
        kept: RelayedSocket | None = None
        try:
            await first_success(tasks)
            for route, task in zip(routes, tasks, strict=True):
                if succeeded(task):
                    self._best[name], kept = route, task.result()
                    return kept
            self._best.pop(name, None)
            raise Unreachable(
                f"{to} cannot be reached over any of {len(routes)} depots", "check them with coget doctor --via"
            )
        finally:
            await discard(tasks, kept)

    async def _possible(self, name: str) -> list[DepotRoute]:
        depots, tickets = list(self.routes.depots), self.routes.to(name).tickets
        if self._listed:
            try:
                depots += await self._listed()
            except CoallocError as error:
                log.warning("the broker's depots are not used: %s", error.message)
        return [DepotRoute((depot,), tickets=tickets) for depot in dict.fromkeys(depots[:MOST_TRIED])]


class AutomaticDialer(DirectDialer):
    """A dialer for the sessions that take the better route, or for those that take the other one.

    :param policy: policy that the servers' addresses must satisfy
    :param rank: 0 for the better route, 1 for the other one
    :param otherwise: dialer for servers without an automatic route
    """

    def __init__(self, policy: AddressPolicy, known: AutomaticRoutes, rank: int, otherwise: DirectDialer) -> None:
        super().__init__(policy)
        self._known = known
        self._rank = rank
        self._otherwise = otherwise

    def serves(self, host: str) -> bool:
        return self._rank == 0 or self._known.routes.to(host).automatic

    async def dial(self, host: str, port: int, seconds: float) -> socket.socket:
        name = self._known.names.get(host, host)
        if not self._known.routes.to(name).automatic:
            return await self._otherwise.under(self.policy).dial(host, port, seconds)
        address = await checked(host, port, self.policy)
        self._known.names[address] = name
        to, order = HostPort(address, port), self._known.order(name)
        if self._rank == 0 and not order.done():
            return await self._choose(name, host, to, seconds)
        try:
            kinds = await asyncio.wait_for(asyncio.shield(order), seconds)
        except TimeoutError:
            raise Unreachable(f"the better route to {host}:{port} is not known yet", "try again") from None
        first, second = kinds if self._rank == 0 else reversed(kinds)
        try:
            return await self._dial_by(first, name, host, to, seconds)
        except SourceError:
            if self._rank:
                raise
            return await self._dial_by(second, name, host, to, seconds)

    async def _dial_by(self, kind: Kind, name: str, host: str, to: HostPort, seconds: float) -> socket.socket:
        if kind == "depot":
            return await self._known.relay(name, to, seconds)
        return await super().dial(host, to.port, seconds)

    async def _choose(self, name: str, host: str, to: HostPort, seconds: float) -> socket.socket:
        """Connect over both routes, return the connection over the better one, and record their order."""
        loop, near = asyncio.get_running_loop(), asyncio.Event()
        began = loop.time()
        direct = loop.create_task(super().dial(host, to.port, seconds))
        relayed = loop.create_task(self._known.relay(name, to, seconds, near.set))
        tasks: list[ConnectionTask] = [direct, relayed]
        kept: socket.socket | None = None
        try:
            await first_success(tasks)
            if not direct.done():
                await asyncio.wait([direct], timeout=max(0.0, PATIENCE * (loop.time() - began)))
            if not relayed.done() and near.is_set():
                await asyncio.wait([relayed], timeout=(PATIENCE - 1.0) * (loop.time() - began))
            over_depot = succeeded(relayed) and (not succeeded(direct) or _is_better(relayed.result(), direct.result()))
            kept = await (relayed if over_depot else direct)
            return kept
        finally:
            order = self._known.order(name)
            if not order.done():
                order.set_result(("depot", "direct") if isinstance(kept, RelayedSocket) else ("direct", "depot"))
            await discard(tasks, kept)


def _is_better(relayed: RelayedSocket, direct: socket.socket) -> bool:
    first, straight = round_trip(relayed), round_trip(direct)
    if first is None or straight is None:
        return False
    return is_shorter(straight, [first - relayed.further, *relayed.legs])
