"""Measured routes over depots, which users report, and the expected times based on them."""

import time
from collections.abc import Mapping, Sequence
from statistics import median_low

from sqlalchemy.ext.asyncio import AsyncConnection

from broker.models.callers import Caller
from broker.models.depots import ExpectedRoute, ReportedRoute, RouteTime
from broker.services.auth.quotas import Quotas
from broker.storage.database import Database, retried
from broker.storage.depots import DepotStore
from broker.storage.routes import RouteStore
from coalloc.history.route_values import VALID_SECONDS, expected_times
from coalloc.model.routes import DIRECTLY

__all__ = ["MeasuredRoutes", "route_times"]

MOST_ROUTES = 5
"""Maximum number of routes to one host in an answer, as replicas of thousands of datasets may have them."""
AHEAD = 3600.0
"""Seconds by which the clock of a reporter may be ahead."""
KEPT_SECONDS = 400 * 86_400.0
"""Age in seconds at which a measurement is deleted: 13 months, for reports."""
MOST_KEPT = 20_000
"""Number of a reporter's newest measurements that are kept."""


class MeasuredRoutes:
    """The measured routes to servers."""

    def __init__(self, database: Database, quotas: Quotas) -> None:
        self._database = database
        self._quotas = quotas

    async def take(self, caller: Caller, site: str, routes: Sequence[ReportedRoute]) -> int:
        """Store measurements of a caller at a site, and forget old ones; return the number of stored ones.

        Those that are not valid any more, or end far in the future, are left out.

        :param site: empty for the caller's usual site
        :raises TooManyRequests: when the caller has used up its quota
        """
        self._quotas.take(caller.subject, caller.role, max(1, len(routes)))
        now = time.time()
        valid = [each for each in routes if now - VALID_SECONDS < each.ended < now + AHEAD]
        await self._keep(caller.subject, site or caller.site, valid, now - KEPT_SECONDS)
        return len(valid)

    @retried
    async def _keep(self, subject: str, site: str, routes: Sequence[ReportedRoute], oldest: float) -> None:
        async with self._database.write() as connection:
            store = RouteStore(connection)
            await store.forget(oldest)
            if routes:
                await store.add(subject, site, routes)
                await store.forget_most(subject, MOST_KEPT)

    async def expected(self, caller: Caller, site: str, hosts: Sequence[str]) -> list[ExpectedRoute]:
        """Return the expected times of the routes to servers, from the measurements of a caller and of its site.

        :param site: empty for the caller's usual site
        """
        async with self._database.read() as connection:
            times = await route_times(connection, caller.subject, site or caller.site, hosts)
        return [
            ExpectedRoute(host=host, route=each.route, seconds=each.seconds)
            for host, routes in sorted(times.items())
            for each in routes
        ]


async def route_times(
    connection: AsyncConnection, subject: str, site: str, hosts: Sequence[str]
) -> dict[str, list[RouteTime]]:
    """Return the expected times of the measured routes to hosts, the shortest first.

    Each reporter has one vote: the median over the reporters counts. Routes of others count if their depots are
    registered. If there are many, the direct one and those with the most reporters are left.

    :param subject: user, whose own measurements count at any site
    """
    since = time.time() - VALID_SECONDS
    measured = await RouteStore(connection).newest(hosts, subject, site, since) if hosts else {}
    if not measured:
        return {}
    registered = {str(each.depot.place) for each in (await DepotStore(connection).all()).values()}
    votes: dict[str, dict[str, list[float]]] = {}
    for reporter, own in measured.items():
        for host, times in expected_times(own).items():
            for route, seconds in times.items():
                if route == DIRECTLY or reporter == subject or registered.issuperset(route.split(",")):
                    votes.setdefault(host, {}).setdefault(route, []).append(seconds)
    return {host: _best(routes) for host, routes in votes.items()}


def _best(votes: Mapping[str, Sequence[float]]) -> list[RouteTime]:
    """Return the routes with the most votes, the fastest first; the direct one is always among them."""
    times = [RouteTime(route, median_low(each)) for route, each in votes.items()]
    times.sort(key=lambda each: (each.route != DIRECTLY, -len(votes[each.route]), each.seconds, each.route))
    return sorted(times[:MOST_ROUTES], key=lambda each: (each.seconds, each.route))
