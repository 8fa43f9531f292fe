"""Measured routes over depots, which users report, and the expected times based on them."""

import time
from collections.abc import Sequence
from statistics import median_low

from sqlalchemy.ext.asyncio import AsyncConnection

from broker.models.access import Caller
from broker.models.depots import ExpectedRoute, ReportedRoute, RouteTime
from broker.services.auth.quotas import Quotas
from broker.storage.database import Database, retried
from broker.storage.routes import RouteStore
from coalloc.history.route_values import VALID_SECONDS, expected_times

__all__ = ["MeasuredRoutes", "route_times"]

MOST_ROUTES = 64
"""Maximum number of routes to one host in an answer."""
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

        Those that are not valid any more, or end in the future, are left out.

        :param site: empty for the caller's usual site
        :raises TooManyRequests: when the caller has used up its quota
        """
        self._quotas.take(caller.subject, caller.role, len(routes))
        now = time.time()
        valid = [
            each.model_copy(update={"ended": min(each.ended, now)})
            for each in routes
            if now - VALID_SECONDS < each.ended < now + AHEAD
        ]
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

    Each reporter has one vote: the median over the reporters counts.

    :param subject: user, whose own measurements count at any site
    """
    measured = await RouteStore(connection).newest(hosts, subject, site, time.time() - VALID_SECONDS)
    votes: dict[str, dict[str, list[float]]] = {}
    for own in measured.values():
        for host, times in expected_times(own).items():
            for route, seconds in times.items():
                votes.setdefault(host, {}).setdefault(route, []).append(seconds)
    return {
        host: [
            RouteTime(route, seconds)
            for seconds, route in sorted((median_low(each), route) for route, each in routes.items())[:MOST_ROUTES]
        ]
        for host, routes in votes.items()
    }
