"""Sites and endpoints, with a short-lived cache of all of them, since they are few and needed by every request."""

import time
from collections.abc import Iterable, Mapping
from math import asin, cos, radians, sin, sqrt
from typing import NamedTuple, TypedDict
from urllib.parse import urlsplit

import structlog

from broker.errors import BrokerError, Forbidden, Invalid, NotFound
from broker.models.callers import Caller, Role
from broker.models.catalogue import PORTS, Endpoint, Site
from broker.models.collections import Collection
from broker.services.addresses import policy_for
from broker.services.auth.permissions import NOBODY, granted
from broker.services.collection_paths import below
from broker.storage.collections import CollectionStore
from broker.storage.database import Database, retried
from broker.storage.places import Placed
from broker.storage.places import PlaceStore as Stored
from broker.storage.tokens import TokenStore
from coalloc.util.addresses import AddressClass, AddressPolicy, Network

__all__ = ["Allowed", "Map", "Places", "kilometres"]

REMEMBERED = 2.0
"""Seconds for which the cache may miss changes by another process."""


GLOBUS = "globus://"
EARTH = 6371.0
"""Radius in km."""
LOGGED = 50
"""Most endpoints that are logged one by one."""
log = structlog.get_logger("broker")


class Map(NamedTuple):
    """All endpoints by number and name, all sites by name, and the endpoint and site of each collection by its id.

    :param policy: policy for addresses to connect to
    """

    by_id: Mapping[int, Placed]
    by_name: Mapping[str, Placed]
    sites: Mapping[str, Site]
    collections: Mapping[str, tuple[str | None, str]]
    policy: AddressPolicy = AddressPolicy(AddressClass.PUBLIC)

    def coordinates(self, site: str) -> tuple[float, float] | None:
        """Return the latitude and longitude of a site in degrees; None if unknown."""
        known = self.sites.get(site)
        if known is None or known.latitude is None or known.longitude is None:
            return None
        return known.latitude, known.longitude

    def all_coordinates(self) -> dict[str, tuple[float, float]]:
        """Return the latitude and longitude in degrees of all sites by name, and of all endpoints by address."""
        found = {name: where for name in self.sites if (where := self.coordinates(name))}
        return found | {each.endpoint.source: each.coordinates for each in self.by_id.values() if each.coordinates}


class Allowed(TypedDict):
    """The limits of what sessions may reach and hand out, as keyword arguments of coget's functions.

    `policy` has the permitted addresses of servers and data; `delegate` has the hosts that may get a limited proxy
    certificate.
    """

    policy: AddressPolicy
    delegate: frozenset[str]


class Places:
    """Sites and endpoints.

    :param networks: networks whose private and loopback addresses are allowed for all users
    """

    def __init__(self, database: Database, networks: tuple[Network, ...] = ()) -> None:
        self._database = database
        self._networks = networks
        self._map = Map({}, {}, {}, {})
        self._until = 0.0
        self._changes = 0

    async def map(self) -> Map:
        """Return the map of all sites and endpoints, at most `REMEMBERED` seconds old."""
        if time.monotonic() >= self._until:
            before = self._changes
            async with self._database.read() as connection:
                stored = Stored(connection)
                placed, sites = await stored.endpoints(), await stored.sites()
                ends = await CollectionStore(connection).ends()
            by_name = {each.endpoint.name: each for each in placed}
            opened = (each.endpoint for each in placed if each.opened)
            policy = policy_for(self._networks, opened, (each.endpoint for each in placed))
            by_id, named = {each.id: each for each in placed}, {site.name: site for site in sites}
            found = Map(by_id, by_name, named, ends, policy)
            if before != self._changes:  # not cached, because it may have been read before the change
                return found
            self._map, self._until = found, time.monotonic() + REMEMBERED
        return self._map

    def look_again(self) -> None:
        """Invalidate the cache, because sites or endpoints may have changed."""
        self._until = 0.0
        self._changes += 1

    async def sources(self, named: Iterable[str], caller: Caller = NOBODY) -> dict[str, str]:
        """Return the stored name of each source.

        An endpoint's name, its address, and `globus://` with the id of a collection at it are the same source, if the
        caller may see that collection.

        :raises Invalid: when a source is an unknown endpoint, or a malformed address
        """
        named = list(named)
        known = await self._seen_by(caller, named)
        return {name: _source(name, known) for name in named}

    async def sinks(self, named: Iterable[str], caller: Caller = NOBODY) -> dict[str, str]:
        """Return the stored name of each sink.

        For the address of an endpoint, and the id of a collection that the caller may see, it is the site, if known.

        :raises Invalid: when a sink is a malformed address
        """
        named = list(named)
        known = await self._seen_by(caller, named)
        sites = {placed.endpoint.source: placed.endpoint.site for placed in known.by_id.values()}
        return {name: _sink(name, known, sites) for name in named}

    async def _seen_by(self, caller: Caller, named: Iterable[str]) -> Map:
        """Return the map, with only the named collections that the caller may see."""
        known = await self.map()
        numbers = {name.removeprefix(GLOBUS) for name in named} & known.collections.keys()
        if not numbers:
            return known._replace(collections={})
        async with self._database.read() as connection:
            stored = CollectionStore(connection)
            every, rules = await stored.all(numbers), await stored.rules(numbers)
        seen = [str(each.id) for each in every if granted(caller, each, rules.get(str(each.id), ()))]
        return known._replace(collections={number: known.collections[number] for number in seen})

    @retried
    async def put_site(self, by: str, site: Site) -> Site:
        """Create or change a site."""
        async with self._database.write() as connection:
            await Stored(connection).put_site(site)
            await TokenStore(connection).note(time.time(), by, "put site", site.name)
        self.look_again()
        return site

    @retried
    async def remove_site(self, by: str, name: str) -> None:
        """Remove a site. :raises NotFound: :raises Conflict: when it has endpoints"""
        async with self._database.write() as connection:
            await Stored(connection).remove_site(name)
            await TokenStore(connection).note(time.time(), by, "remove site", name)
        self.look_again()

    @retried
    async def put_endpoint(self, by: str, endpoint: Endpoint, role: Role = "admin") -> Endpoint:
        """Create or change an endpoint. An admin may give it a private or loopback address.

        :raises NotFound: when its site does not exist
        :raises Forbidden: when a user who is no admin changes `delegate` or `data_hosts`, or moves an endpoint that has
            these, or a collection with a credential
        """
        async with self._database.write() as connection:
            stored = Stored(connection)
            before = next(
                (each.endpoint for each in await stored.endpoints() if each.endpoint.name == endpoint.name), None
            )
            there = await CollectionStore(connection).at(endpoint.name)
            if role != "admin":
                endpoint = _permitted(by, endpoint, before, there)
            if before and _where(before) != _where(endpoint):
                if role == "admin":
                    await CollectionStore(connection).forget_folders(endpoint.name)
                else:
                    for each in there:
                        await CollectionStore(connection).keep_folder(
                            each.id, before.host, below(before.prefix, each.base)
                        )
            await stored.put_endpoint(endpoint, opened=role == "admin")
            description = f"{endpoint.name}: may be given a proxy" if endpoint.delegate else endpoint.name
            await TokenStore(connection).note(time.time(), by, "put endpoint", description)
        self.look_again()
        return endpoint

    @retried
    async def remove_endpoint(self, by: str, name: str) -> None:
        """Remove an endpoint. :raises NotFound: :raises Conflict: when it has replicas or collections"""
        async with self._database.write() as connection:
            await Stored(connection).remove_endpoint(name)
            await TokenStore(connection).note(time.time(), by, "remove endpoint", name)
        self.look_again()

    async def log_opened(self) -> None:
        """Log the endpoints that an upgrade has allowed to keep a private address until an admin confirms them."""
        try:
            known = [each.endpoint for each in (await self.map()).by_name.values() if each.opened == "upgrade"]
        except BrokerError as error:
            log.warning("cannot list the endpoints that need confirmation after the upgrade", error=error.message)
            return
        for endpoint in known[:LOGGED]:
            log.warning(
                "an endpoint from before an upgrade may have a private or loopback address",
                endpoint=endpoint.name,
                address=endpoint.source,
                remedy="confirm it by putting it again as an admin, or remove it",
            )
        if len(known) > LOGGED:
            log.warning("there are more such endpoints", count=len(known) - LOGGED)

    async def allowed(self) -> Allowed:
        """Return the limits of sessions for users."""
        known = await self.map()
        endpoints = [each.endpoint for each in known.by_id.values()]
        return {
            "policy": known.policy,
            "delegate": frozenset(each.host for each in endpoints if each.delegate),
        }

    async def policy(self) -> AddressPolicy:
        """Return the policy for addresses to connect to for users."""
        return (await self.map()).policy

    async def site(self, name: str) -> Site:
        """Return a site. :raises NotFound:"""
        site = (await self.map()).sites.get(name)
        if site is None:
            raise NotFound(f"there is no site {name}", "choose one listed by GET /broker/v1/sites")
        return site

    async def endpoint(self, name: str) -> Endpoint:
        """Return an endpoint. :raises NotFound:"""
        placed = (await self.map()).by_name.get(name)
        if placed is None:
            raise NotFound(f"there is no endpoint {name}", "choose one listed by GET /broker/v1/endpoints")
        return placed.endpoint


def _permitted(by: str, endpoint: Endpoint, before: Endpoint | None, collections: Iterable[Collection]) -> Endpoint:
    """Check a change by a non-admin; return the endpoint, with the old `delegate` and `data_hosts` by default.

    :raises Forbidden: when only an admin may make the change
    """
    if before:
        silent = {"delegate", "data_hosts"} - endpoint.model_fields_set
        endpoint = endpoint.model_copy(update={name: getattr(before, name) for name in silent})
    if endpoint.delegate != (before is not None and before.delegate):
        raise Forbidden(f"{by} may not decide whether {endpoint.name} is given a proxy", "ask an admin")
    if set(endpoint.data_hosts) != set(before.data_hosts if before else ()):
        raise Forbidden(f"{by} may not set the data hosts of {endpoint.name}", "ask an admin")
    if before is None or _where(before) == _where(endpoint):
        return endpoint
    shown = "gsiftp" in (before.scheme, endpoint.scheme)  # a collection without a credential uses the workers' own
    if endpoint.delegate or endpoint.data_hosts or any(shown or each.credential for each in collections):
        raise Forbidden(
            f"{by} may not move {endpoint.name}: it has data hosts, a proxy or credentials",
            "ask an admin, or create another endpoint",
        )
    return endpoint


def _where(endpoint: Endpoint) -> tuple[str, str, int, str]:
    """Return the address and the directory of an endpoint."""
    return endpoint.scheme, endpoint.host, endpoint.port or PORTS[endpoint.scheme], endpoint.prefix


def _site(name: str, known: Map) -> str:
    endpoint, site = known.collections.get(name, (None, ""))
    return site if endpoint is None else known.by_name[endpoint].endpoint.site


def _sink(name: str, known: Map, sites: Mapping[str, str]) -> str:
    if "://" not in name:
        return _site(name, known) or name
    address = _source(name, known)
    return sites.get(address, address)


def _source(name: str, known: Map) -> str:
    endpoints = known.by_name
    name = known.collections.get(name.removeprefix(GLOBUS), (None, ""))[0] or name
    if "://" not in name:
        if name not in endpoints:
            raise Invalid(
                f"there is no endpoint {name}",
                "choose one listed by GET /broker/v1/endpoints, or give SCHEME://HOST[:PORT]",
            )
        return endpoints[name].endpoint.source
    return server_address(name)


def server_address(url: str) -> str:
    """Return the stored form of the address of a URL's server. :raises Invalid: when it is malformed"""
    try:
        parts = urlsplit(url)
        port, host = parts.port, parts.hostname
    except ValueError:
        port, host = None, None
    if not host or port == 0:
        raise Invalid(f"{url} is not an address of a server", "write it as SCHEME://HOST[:PORT]")
    host = f"[{host}]" if ":" in host else host
    return f"{parts.scheme}://{host}" + ("" if port in (None, PORTS.get(parts.scheme)) else f":{port}")


def kilometres(a: tuple[float, float] | None, b: tuple[float, float] | None) -> float | None:
    """Return the distance between two coordinates in km, along a great circle (haversine); None if one is missing.

    :param a: latitude and longitude in degrees, like `b`

    >>> round(kilometres((46.23, 6.05), (41.84, -88.26)))
    7084
    """
    if a is None or b is None:
        return None
    (north, east), (other_north, other_east) = (tuple(map(radians, point)) for point in (a, b))
    chord = sin((other_north - north) / 2) ** 2 + cos(north) * cos(other_north) * sin((other_east - east) / 2) ** 2
    return 2 * EARTH * asin(sqrt(min(1.0, chord)))
