"""The depots of the demonstration, and the measured routes over them: one helps, one harms, one is hardly used."""

from collections import defaultdict
from collections.abc import Iterator
from random import Random
from typing import NamedTuple

from broker.demo.places import ADMIN, Note
from broker.demo.world import DAY, PEOPLE, DemoLink, World
from broker.models.depots import NewDepot, ReportedRoute
from broker.storage.database import Database, retried
from broker.storage.depots import DepotStore
from broker.storage.routes import RouteStore
from coalloc.model.routes import DIRECTLY

__all__ = ["DEPOTS", "DemoDepot", "DemoRoute", "measured_routes", "relay"]

DAYS = 40
LINKS = 9
"""Number of links on which users measure routes."""
PROBED = 2
"""Number of links on which users measure, but do not use depots."""
OFTEN = 0.7
"""Share of days on which a user measures routes."""
SCATTER = 0.2
"""Standard deviation of the logarithm of a time."""
MIB = 1 << 20


class DemoDepot(NamedTuple):
    """A depot.

    :param gains: smallest and largest gain over it; a gain of 2 means half the time
    :param often: share of measurements that also measure it
    """

    depot: NewDepot
    gains: tuple[float, float]
    often: float

    @property
    def route(self) -> str:
        """The route over the depot."""
        return f"{self.depot.host}:{self.depot.port}"


class DemoRoute(NamedTuple):
    """A measured route, with the subject and site that reported it."""

    subject: str
    site: str
    reported: ReportedRoute


def _depot(site: str, gains: tuple[float, float], often: float) -> DemoDepot:
    return DemoDepot(NewDepot(name=f"{site}-depot", site=site, host=f"depot.{site}.example"), gains, often)


DEPOTS = (_depot("chicago", (1.1, 1.8), 1.0), _depot("oxford", (0.6, 1.0), 0.7), _depot("canberra", (0.9, 1.1), 0.02))


def measured_routes(made: World, seed: int, end: float) -> Iterator[DemoRoute]:
    """Yield the measurements of all users before the end."""
    for number, link in enumerate(made.links[-LINKS:]):
        chance = Random(f"routes {seed} {number}")
        direct = 0.1 + min(link.setup, 2.0)
        gains = {DIRECTLY: 1.0, **{each.route: chance.uniform(*each.gains) for each in DEPOTS}}
        moved = MIB if number < PROBED else int(link.a_day * chance.uniform(0.2e9, 0.8e9))
        for day in range(1, DAYS):
            for subject in PEOPLE[: 1 + number % len(PEOPLE)]:
                if chance.random() < OFTEN:
                    ended = end - (day - chance.random()) * DAY
                    weather = direct * chance.lognormvariate(0, SCATTER)
                    for route, gain in gains.items():
                        often = next((each.often for each in DEPOTS if each.route == route), 1.0)
                        if chance.random() < often:
                            seconds = weather / gain * chance.lognormvariate(0, SCATTER)
                            yield DemoRoute(subject, link.sink, _reported(link, route, ended, seconds, moved))


def _reported(link: DemoLink, route: str, ended: float, seconds: float, moved: int) -> ReportedRoute:
    return ReportedRoute(
        scheme=link.source.scheme,
        host=link.source.host,
        ended=ended,
        route=route,
        bytes=moved,
        seconds=seconds * moved / MIB,
        sessions=1,
        opening_seconds=0.4 * seconds,
        beginning=MIB,
        beginning_seconds=0.6 * seconds,
    )


@retried
async def relay(database: Database, made: World, seed: int, end: float) -> list[Note]:
    """Store the depots and the measured routes; return the notes for the audit log."""
    reports: defaultdict[tuple[str, str], list[ReportedRoute]] = defaultdict(list)
    for subject, site, reported in measured_routes(made, seed, end):
        reports[subject, site].append(reported)
    async with database.write() as connection:
        for each in DEPOTS:
            await DepotStore(connection).put(each.depot)
        for (subject, site), routes in reports.items():
            await RouteStore(connection).add(subject, site, routes)
    return [Note(end - (DAYS + 1) * DAY + i, ADMIN, "put depot", each.depot.name) for i, each in enumerate(DEPOTS)]
