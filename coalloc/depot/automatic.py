"""Automatic routes: the best depot to each server, for the sessions that do not connect directly.

The sessions with a replica take the direct route and the one over the best depot in turn. The best depot is the one
with the shortest expected time, and else the one that answers first.
"""

import asyncio
import logging
import socket
import time
from collections.abc import Awaitable, Callable, Collection, Sequence

from coalloc.depot.completion import AGAIN, discard
from coalloc.depot.dialer import CHECK, RelayedDialer, refused_by_server, why
from coalloc.depot.protocol.addresses import HostPort
from coalloc.depot.route import CHOSEN, DepotRoute
from coalloc.errors import CoallocError, Unreachable
from coalloc.model.routes import DIRECTLY
from coalloc.util.addresses import AddressPolicy
from coalloc.util.concurrency import first_success, succeeded
from coalloc.util.dialer import DirectDialer, RelayedSocket, checked, send_first

__all__ = ["MOST_TRIED", "BestDepotDialer", "Listed"]

log = logging.getLogger(__name__)

Listed = Callable[[], Awaitable[Sequence[HostPort]]]
"""`await listed()`: return further depots among which automatic routes choose. Raises a CoallocError."""

MOST_TRIED = 8
"""Maximum number of depots of which the best is chosen."""


class BestDepotDialer(DirectDialer):
    """A dialer that connects over the best depot, for servers whose route is automatic.

    The best depot gets half of the time for a connection. If it fails, all others are tried at once, and none twice.

    :param policy: policy that the servers' addresses must satisfy
    :param fixed: dialer for servers whose route is not automatic; its `routes` and `times` are also used here
    :param listed: returns further depots; None if there are none
    """

    def __init__(self, policy: AddressPolicy, fixed: RelayedDialer, listed: Listed | None = None) -> None:
        super().__init__(policy)
        self._fixed = fixed
        self._listed = listed
        self._names: dict[str, str] = {}
        """Host of each numeric address, as data connections go to the address."""
        self._best: dict[str, DepotRoute] = {}
        self._failed: dict[tuple[str, str], float] = {}
        """Time until which a route to a host is not tried, because it failed."""

    def serves(self, host: str) -> bool:
        return self._fixed.routes.to(host).automatic

    def route(self, host: str) -> str:
        if not self.serves(host):
            return self._fixed.route(host)
        if best := self._best.get(host):
            return str(best)
        times = self._usable_times(host)
        return min(times, key=times.__getitem__, default=CHOSEN)

    def expected(self, host: str) -> float | None:
        return min(self._usable_times(host).values(), default=None)

    def _usable_times(self, host: str) -> dict[str, float]:
        """Return the expected times over single depots that have not failed, and are named or may be listed."""
        named, now = set(map(str, self._fixed.routes.depots)), time.monotonic()
        return {
            route: seconds
            for route, seconds in self._fixed.times.to(host).items()
            if (route in named or (self._listed and _is_single(route))) and now >= self._failed.get((host, route), now)
        }

    async def dial(self, host: str, port: int, seconds: float, first: bytes = b"") -> socket.socket:
        name = self._names.get(host, host)
        if not self.serves(name):
            return await self._fixed.under(self.policy).dial(host, port, seconds, first)
        address = await checked(host, port, self.policy)
        self._names[address] = name
        end, tried, last = time.monotonic() + seconds, set[str](), "no depot is known"
        while routes := await self._candidates(name, tried):
            left, alone = end - time.monotonic(), len(routes) == 1
            if left <= 0:
                break
            if alone and not tried and (self._listed or len(self._fixed.routes.depots) > 1):
                left /= 2  # the rest is for the other depots
            ahead = first if alone else b""  # not by several routes
            tasks = [self._relayed(route, name, HostPort(address, port), left, ahead) for route in routes]
            kept: RelayedSocket | None = None
            try:
                await first_success(tasks)
                for route, task in zip(routes, tasks, strict=True):
                    if succeeded(task):
                        self._best[name], kept = route, task.result()
                        break
            finally:
                await discard(tasks, kept)
            if kept:
                if not alone and first:
                    await send_first(kept, first)
                return kept
            if all(map(refused_by_server, tasks, routes)):
                raise Unreachable(f"{host}:{port} refused the connection", CHECK)
            last = why(tasks[0], routes[0])
            tried.update(map(str, routes))
            self._best.pop(name, None)
            self._failed.update(((name, str(route)), time.monotonic() + AGAIN) for route in routes)
        raise Unreachable(
            f"cannot reach {host}:{port} over a depot: {last}",
            "add depots to config.toml, and check them with coget doctor --via",
        )

    def _relayed(
        self, route: DepotRoute, name: str, to: HostPort, seconds: float, first: bytes
    ) -> "asyncio.Task[RelayedSocket]":
        return asyncio.get_running_loop().create_task(self._fixed.completed.relay(route, name, to, seconds, first))

    async def _candidates(self, name: str, tried: Collection[str]) -> list[DepotRoute]:
        """Return the best depot if it is known, or expected; else all depots that have not failed.

        :param tried: routes to leave out; after the best one, all others are returned
        """
        if not tried and (best := self._best.get(name)):
            return [best]
        depots, tickets = list(self._fixed.routes.depots), self._fixed.routes.to(name).tickets
        if self._listed:
            try:
                depots += await self._listed()
            except CoallocError as error:
                log.warning("the broker's depots are not used: %s", error.message)
        now, times = time.monotonic(), self._usable_times(name)
        routes = [DepotRoute((depot,), tickets=tickets) for depot in dict.fromkeys(depots)]
        routes = [route for route in routes if now >= self._failed.get((name, str(route)), now)]
        if tried:
            return [route for route in routes if str(route) not in tried][:MOST_TRIED]
        expected = [route for route in routes if str(route) in times]
        return [min(expected, key=lambda route: times[str(route)])] if expected else routes[:MOST_TRIED]


def _is_single(route: str) -> bool:
    """Return whether a route goes over one depot."""
    return not {",", "*"}.intersection(route) and route not in (DIRECTLY, CHOSEN)
