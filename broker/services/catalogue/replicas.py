"""The search for replicas of thousands of datasets at once, ranked, with a forecast and a reason for each."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence, Set
from random import Random
from typing import NamedTuple
from urllib.parse import quote, urlsplit

from broker.config.settings import Settings
from broker.errors import NotFound
from broker.models.base import Fault
from broker.models.callers import Caller
from broker.models.catalogue import address
from broker.models.depots import RouteTime
from broker.models.forecasts import Quantiles, RankedReplica, Resolved
from broker.models.history import Pair
from broker.models.names import split
from broker.services.auth.permissions import NOBODY, Reach
from broker.services.catalogue.enclosing import Readable, numeric
from broker.services.catalogue.hosts import Hosts
from broker.services.catalogue.ranking import ReplicaChoice, rank, rationale
from broker.services.forecasting.forecasts import Forecasting, quantiles
from broker.services.network.places import Map, Places, kilometres
from broker.services.network.routes import route_times
from broker.storage.catalogue import CatalogueStore, LocatedDataset
from broker.storage.database import Database
from coalloc.errors import PermissionRefused, Unreachable
from predictors.context import size_class

__all__ = ["ReadableReplicas", "Replicas"]

CHUNK = 500
"""Names that are processed before other coroutines may run."""
REPORTED = "; last, because it was reported as bad"
EXPLORED = 300.0
"""Seconds until a link is put first again to measure it, long enough for its first transfer to be reported."""


class Option(NamedTuple):
    """An endpoint with its forecast for one size class, and all values that its replicas share."""

    choice: ReplicaChoice
    root: str
    rate: Quantiles | None
    measured: bool
    rationale: str
    routes: Sequence[RouteTime]


class ReadableReplicas(NamedTuple):
    """A dataset with the replicas that a worker may read for a caller.

    :param addresses: IP addresses of the replicas' hosts when permissions were checked; workers must connect to these,
        since a name may resolve to another address later
    :param by_grant: by endpoint, the collections in which the caller may read the replica only by access rules, and its
        path there; a symbolic link on that path may lead to files that the caller may not read
    """

    dataset: Resolved
    addresses: Mapping[str, tuple[str, ...]]
    by_grant: Mapping[str, Sequence[tuple[Reach, str]]]


class Replicas:
    """The search for replicas, and their ranking."""

    def __init__(self, database: Database, places: Places, forecasting: Forecasting, settings: Settings) -> None:
        self._database = database
        self._places = places
        self._forecasting = forecasting
        self._settings = settings
        self._chance = Random()
        self._answers = 0
        self._explored: dict[Pair, float] = {}
        self._hosts = Hosts()

    async def resolve(self, names: Sequence[str], sink: str, caller: Caller = NOBODY) -> AsyncIterator[list[Resolved]]:
        """Yield the datasets with these names, in this order and in parts, with the replicas that the caller may see.

        :param caller: user of the replicas, whose own transfers have more weight in the forecasts
        """
        names = list(dict.fromkeys(names))
        places = await self._places.map()
        async with self._database.read() as connection:
            found = await CatalogueStore(connection).located(names)
            readable = await Readable.of(connection, caller)
        found = {name: _readable(each, places, readable) for name, each in found.items()}
        options = await self._options(found, sink, places, caller.subject)
        for begin in range(0, len(names), CHUNK):
            yield [self._resolved(name, found.get(name), sink, options) for name in names[begin : begin + CHUNK]]
            await asyncio.sleep(0)

    async def one(self, name: str, sink: str, caller: Caller = NOBODY) -> Resolved:
        """Return one dataset, like `resolve`. :raises NotFound: when it does not exist"""
        (resolved,) = [each async for part in self.resolve([name], sink, caller) for each in part]
        return _known(resolved)

    async def to_read(self, name: str, sink: str, caller: Caller) -> ReadableReplicas:
        """Return one dataset, with the replicas that a worker may read for the caller.

        Hosts are compared by their IP addresses, so that several names of one server count as one.

        :raises NotFound: when it does not exist
        :raises PermissionRefused: when all its replicas are in collections that the caller may not read
        :raises Unreachable: when no replica can be read, and the addresses of some hosts are unknown
        """
        places = await self._places.map()
        async with self._database.read() as connection:
            found = await CatalogueStore(connection).located([name])
            readable = await Readable.of(connection, caller)
        hosts = {
            places.by_id[i].endpoint.host for each in found.values() for i, _ in each.replicas if i in places.by_id
        }
        readable, addresses = await self._located(readable, hosts)
        located = found.get(name)
        open_ones = {name: _readable(located, places, readable)} if located else {}
        if located and located.replicas and not open_ones[name].replicas:
            _refuse_unknown(readable, hosts)
            raise PermissionRefused(
                f"{caller.subject} may read no replica of {name}",
                "ask the owner of a collection that contains one, or an admin, to confirm it",
            )
        options = await self._options(open_ones, sink, places, caller.subject, with_routes=False)
        by_grant = {
            places.by_id[i].endpoint.name: readable.by_grant(places.by_id[i], each.did, path, each.registrations[i])
            for each in open_ones.values()
            for i, path in (each.replicas if readable.asks else ())
        }
        return ReadableReplicas(_known(self._resolved(name, open_ones.get(name), sink, options)), addresses, by_grant)

    async def leads(self, caller: Caller, url: str) -> tuple[str, ...]:
        """Check that a worker may follow a redirect to a URL for the caller.

        Return the checked IP addresses, to which the worker must connect; empty if it may look up the host itself.

        :raises PermissionRefused: when the URL is in a collection that the caller may not read
        :raises Unreachable: when this cannot be checked, because the addresses of the host are unknown
        """
        async with self._database.read() as connection:
            readable = await Readable.of(connection, caller)
        host = urlsplit(url).hostname or ""
        readable, addresses = await self._located(readable, {host})
        if not readable.opens_url(url):
            _refuse_unknown(readable, {host})
            raise PermissionRefused(
                f"a redirect leads into a collection that {caller.subject} may not read",
                "register the replica at its real place, and ask the collection's owner to confirm it",
            )
        return addresses.get(numeric(host), ())

    async def _located(self, readable: Readable, hosts: Set[str]) -> tuple[Readable, dict[str, tuple[str, ...]]]:
        """Return `readable` with the addresses of all hosts, and those of `hosts`; none if no check is needed."""
        if not readable.asks:
            return readable, {}
        known = await self._hosts.addresses(hosts | readable.hosts)
        named = {numeric(host) for host in hosts}
        return readable.with_addresses(known), {name: known[name] for name in named if name in known}

    async def _options(
        self,
        found: Mapping[str, LocatedDataset],
        sink: str,
        places: Map,
        subject: str,
        *,
        with_routes: bool = True,
    ) -> dict[tuple[int, int], Option]:
        """Return the options for each endpoint and size class, by endpoint number and class."""
        classes = {size_class(each.size or 0) for each in found.values()}
        numbers = {endpoint for each in found.values() for endpoint, _ in each.replicas}
        readable = {i: places.by_id[i] for i in numbers if i in places.by_id and places.by_id[i].endpoint.read_priority}
        links = {i: Pair(placed.endpoint.source, sink, "read") for i, placed in readable.items()}
        forecasts = await self._forecasting.by_class(links.values(), classes, subject)
        hosts = {placed.endpoint.host for placed in readable.values()} if with_routes else set()
        async with self._database.read() as connection:
            routes = await route_times(connection, subject, sink, sorted(hosts))
        here = places.coordinates(sink)
        options = {}
        for i, placed in readable.items():
            away = kilometres(here, placed.coordinates)
            root = placed.endpoint.source + quote(placed.endpoint.prefix)
            for size in classes:
                choice = ReplicaChoice(placed.endpoint, forecasts[links[i], size], away)
                measured = self._forecasting.knows(links[i])
                options[i, size] = Option(
                    choice,
                    root,
                    quantiles(choice.forecast),
                    measured,
                    rationale(choice, False),
                    routes.get(placed.endpoint.host, ()),
                )
        return options

    def _resolved(
        self, name: str, located: LocatedDataset | None, sink: str, options: Mapping[tuple[int, int], Option]
    ) -> Resolved:
        if located is None:
            fault = Fault(
                code="not_found",
                message=f"there is no dataset {name}",
                remedy="choose one listed by GET /broker/v1/datasets",
            )
            return Resolved(name=name, error=fault)
        size = size_class(located.size or 0)
        usable = [(i, path) for i, path in located.replicas if (i, size) in options]
        known = [(options[i, size], path) for i, path in usable]
        suspicious = [i in located.suspicious for i, _ in usable]
        trusted = [option for (option, _), suspected in zip(known, suspicious, strict=True) if not suspected]
        first = self._to_explore(trusted, sink)
        order = rank([option.choice for option, _ in known], located.size, self._settings.ranking, self._chance, first)
        order.sort(key=suspicious.__getitem__)  # suspicious replicas come last
        plain = split(name).name
        return Resolved(
            name=name,
            size=located.size,
            checksums=located.checksums,
            replicas=[
                _candidate(*known[i], plain, place, located.size, first, suspicious[i])
                for place, i in enumerate(order, 1)
            ],
        )

    def _to_explore(self, options: Sequence[Option], sink: str) -> str | None:
        """Return the name of an endpoint with an unmeasured link to put first; None for most answers.

        One in `explore` answers has one, but no link again within `EXPLORED` seconds.
        """
        self._answers += 1
        if not self._settings.explore or self._answers % self._settings.explore or len(options) < 2:
            return None
        now = time.monotonic()
        for endpoint in (option.choice.endpoint for option in options):
            pair = Pair(endpoint.source, sink, "read")
            if not self._forecasting.knows(pair) and now >= self._explored.get(pair, 0.0):
                self._explored = {old: until for old, until in self._explored.items() if until > now}
                self._explored[pair] = now + EXPLORED
                return endpoint.name
        return None


def _readable(located: LocatedDataset, places: Map, readable: Readable) -> LocatedDataset:
    """Return a dataset with only the replicas that the caller may see."""
    if not readable.asks:
        return located
    there = [
        (i, path)
        for i, path in located.replicas
        if i in places.by_id and readable.opens(places.by_id[i], located.did, path, located.registrations[i])
    ]
    return located._replace(replicas=there)


def _refuse_unknown(readable: Readable, hosts: Iterable[str]) -> None:
    """Check that the addresses of hosts are known. :raises Unreachable: when some are unknown"""
    unknown = sorted(host for host in hosts if not readable.knows(host))
    if unknown:
        raise Unreachable(
            f"cannot look up the addresses of {', '.join(unknown)}, so the permissions there are unknown",
            "check the name service of the workers",
        )


def _known(resolved: Resolved) -> Resolved:
    """Return the dataset. :raises NotFound: when it does not exist"""
    if resolved.error:
        raise NotFound(resolved.error.message, resolved.error.remedy)
    return resolved


def _candidate(
    option: Option, path: str | None, name: str, place: int, size: int | None, first: str | None, suspicious: bool
) -> RankedReplica:
    forecast, endpoint = option.choice.forecast, option.choice.endpoint
    tried = first == endpoint.name
    return RankedReplica(
        url=address(option.root, path or name),
        endpoint=endpoint.name,
        site=endpoint.site,
        rank=place,
        rate=option.rate,
        measured=option.measured,
        setup_seconds=forecast.setup_seconds,
        seconds=None if size is None else forecast.seconds(size),
        rationale=(rationale(option.choice, True) if tried else option.rationale) + (REPORTED if suspicious else ""),
        routes=option.routes,
    )
