"""Collections that contain a replica, and the users who may see and read the replica.

The catalogue must not give access to files of collections. A replica inside a collection is open to everybody only if
the collection's owner or an admin registered or confirmed it at its current URL. Other users may see it if they may
read its path in all collections that contain it. A server is identified by its host, since the same files may be
available at several ports and schemes. A second path to the same files, such as a link on the server, is not detected.
"""

from collections.abc import Collection as Several
from collections.abc import Mapping, Sequence
from ipaddress import ip_address
from socket import inet_aton, inet_ntoa
from typing import NamedTuple, TypeVar
from urllib.parse import urlsplit
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncConnection

from broker.models.callers import Caller
from broker.models.catalogue import CatalogueReplica, Endpoint
from broker.models.collections import AccessRule, Collection
from broker.models.names import split
from broker.services.auth.permissions import Reach
from broker.services.catalogue.path_readings import folded, readings
from broker.services.network.places import Map
from broker.storage.collections import CollectionFolder, CollectionStore
from broker.storage.places import Placed
from broker.storage.registrations import Registrations, ReplicaRegistration
from broker.storage.replica_problems import Suspect
from coalloc.util.addresses import AddressClass, carried, class_of

__all__ = ["Enclosing", "Enclosure", "Readable", "confirmed", "is_address", "numeric", "visible_replicas"]

Addresses = Mapping[str, Several[str]]
"""Numeric IP addresses of hosts, by host name."""
AnyReplica = TypeVar("AnyReplica", CatalogueReplica, Suspect)
THIS_MACHINE = "127.0.0.1"
WEB = ("http", "https")


class Enclosure(NamedTuple):
    """A collection that contains a replica, and the replica's path in it."""

    collection: Collection
    path: str


class Enclosing:
    """The directories of all collections.

    :param addresses: IP addresses by host; a host without addresses may be any host; None to compare only the names
    """

    def __init__(self, folders: Sequence[CollectionFolder], addresses: Addresses | None = None) -> None:
        self._given_folders = folders
        self._addresses = addresses
        self._folders = [
            (each.collection, self._names(each.endpoint.host), _parts(each.endpoint.prefix + each.collection.base))
            for each in folders
        ]
        self._known: dict[tuple[str, str], list[tuple[Collection, tuple[str, ...]]]] = {}

    def __bool__(self) -> bool:
        """Return whether there is any directory."""
        return bool(self._folders)

    @property
    def hosts(self) -> frozenset[str]:
        """The hosts of the collections."""
        return frozenset(each.endpoint.host for each in self._given_folders)

    def with_addresses(self, addresses: Addresses) -> "Enclosing":
        """Return a copy that knows these addresses of hosts."""
        return Enclosing(self._given_folders, addresses)

    def around(self, endpoint: Endpoint, path: str) -> list[Enclosure]:
        """Return the collections that contain a path below an endpoint's directory."""
        if endpoint.scheme in WEB:
            return self.around_url(endpoint.url(path))
        near = self._near(endpoint.host, endpoint.prefix)
        whole = _parts(endpoint.prefix) + _parts(path) if near else ()
        return [Enclosure(collection, _inside(folder, whole)) for collection, folder in near if _covers(folder, whole)]

    def around_url(self, url: str) -> list[Enclosure]:
        """Return the collections that may contain the file of a URL, for all interpretations of the URL by servers."""
        parts = urlsplit(url)
        near = self._near(parts.hostname or "", "/")
        found = {
            (collection.id, inside): Enclosure(collection, inside)
            for path in readings(parts.path)
            for collection, folder in near
            if _covers(folder, whole := _parts(path))
            for inside in [_inside(folder, whole)]
        }
        return list(found.values())

    def near(self, endpoint: Endpoint) -> bool:
        """Return whether files below an endpoint's directory may lie in a collection."""
        return bool(self._near(endpoint.host, "/" if endpoint.scheme in WEB else endpoint.prefix))

    def knows(self, host: str) -> bool:
        """Return whether the addresses of a host are known, or not needed."""
        plain = numeric(host)
        return self._addresses is None or plain in self._addresses or is_address(plain)

    def _near(self, host: str, prefix: str) -> list[tuple[Collection, tuple[str, ...]]]:
        key = (host, prefix)
        if key not in self._known:
            names, root, known = self._names(host), _parts(prefix), self.knows(host)
            self._known[key] = [
                (collection, folder)
                for collection, others, folder in self._folders
                if (names & others or not known) and (_covers(folder, root) or _same(folder[: len(root)], root))
            ]
        return self._known[key]

    def _names(self, host: str) -> frozenset[str]:
        return frozenset({plain := numeric(host)}).union(*map(_ends, (self._addresses or {}).get(plain, ())))


class Readable:
    """The rules by which a caller may see and read replicas.

    :param rules: access rules of each collection, by its id
    """

    def __init__(self, caller: Caller, enclosing: Enclosing, rules: Mapping[str, Sequence[AccessRule]]) -> None:
        self._caller = caller
        self._enclosing = enclosing
        self._rules = rules
        self._reaches: dict[UUID, Reach] = {}

    @classmethod
    async def of(cls, connection: AsyncConnection, caller: Caller) -> "Readable":
        """Read the directories and the access rules from the database."""
        stored = CollectionStore(connection)
        enclosing = Enclosing(await stored.folders())
        return cls(caller, enclosing, await stored.rules_for(caller.subject) if enclosing else {})

    @property
    def asks(self) -> bool:
        """Return whether there are collections that may contain replicas, so that checks are needed."""
        return bool(self._enclosing)

    @property
    def hosts(self) -> frozenset[str]:
        """The hosts of the collections."""
        return self._enclosing.hosts

    def knows(self, host: str) -> bool:
        """Return whether the addresses of a host are known, or not needed."""
        return self._enclosing.knows(host)

    def with_addresses(self, addresses: Addresses) -> "Readable":
        """Return a copy that knows these addresses of hosts."""
        return Readable(self._caller, self._enclosing.with_addresses(addresses), self._rules)

    def opens(self, placed: Placed, did: str, path: str | None, registration: ReplicaRegistration) -> bool:
        """Return whether the caller may see a replica of a dataset.

        :param path: path below the endpoint's directory; None for the dataset's name
        """
        around = self._enclosing.around(placed.endpoint, path or split(did).name)
        return all(confirmed(registration, placed, each.collection) or self._reads(each) for each in around)

    def by_grant(
        self, placed: Placed, did: str, path: str | None, registration: ReplicaRegistration
    ) -> list[tuple[Reach, str]]:
        """Return the collections in which the caller may read a replica only by access rules, and its path in each.

        A symbolic link on that path may lead to files that the caller may not read; only the collection's server knows.
        """
        around = self._enclosing.around(placed.endpoint, path or split(did).name)
        return [
            (self._reach(each.collection), each.path)
            for each in around
            if not confirmed(registration, placed, each.collection)
        ]

    def opens_url(self, url: str) -> bool:
        """Return whether the caller may read the file of a URL that is not registered as a replica."""
        return all(self._reads(each) for each in self._enclosing.around_url(url))

    def _reads(self, each: Enclosure) -> bool:
        return self._reach(each.collection).may(each.path, writes=False)

    def _reach(self, collection: Collection) -> Reach:
        if collection.id not in self._reaches:
            rules = self._rules.get(str(collection.id), ())
            self._reaches[collection.id] = Reach(self._caller, collection, rules)
        return self._reaches[collection.id]


async def visible_replicas(
    connection: AsyncConnection, places: Map, replicas: list[AnyReplica], caller: Caller | None
) -> list[AnyReplica]:
    """Return the replicas that a caller may see; curators see all."""
    if caller is None or caller.may("curator") or not replicas:
        return replicas
    readable = await Readable.of(connection, caller)
    if not readable.asks:
        return replicas
    found = await Registrations(connection).of(list(dict.fromkeys(each.dataset for each in replicas)))
    opened = {
        (each.dataset, places.by_id[each.endpoint].endpoint.name)
        for each in found
        if each.endpoint in places.by_id
        and readable.opens(places.by_id[each.endpoint], each.dataset, each.path, each.registration)
    }
    return [each for each in replicas if (each.dataset, each.endpoint) in opened]


def confirmed(registration: ReplicaRegistration, placed: Placed, collection: Collection) -> bool:
    """Return whether an admin or the collection's owner registered or confirmed a replica at its current place."""
    there = registration.moves == placed.moves
    return there and (registration.admin or registration.by == collection.owner)


def numeric(host: str) -> str:
    """Return a host's IP address or name in a canonical spelling; all loopback addresses become 127.0.0.1.

    >>> numeric("DTN.Example."), numeric("[2001:DB8:0::1]"), numeric("0xc0000201"), numeric("[::ffff:192.0.2.1]")
    ('dtn.example', '2001:db8::1', '192.0.2.1', '192.0.2.1')
    >>> numeric("127.1"), numeric("localhost"), numeric("[::1]")
    ('127.0.0.1', '127.0.0.1', '127.0.0.1')
    """
    plain = host.strip("[]").rstrip(".").lower()
    if plain == "localhost" or plain.endswith(".localhost"):
        return THIS_MACHINE
    try:
        return min(_ends(str(ip_address(plain))))
    except ValueError:
        pass
    try:
        return min(_ends(inet_ntoa(inet_aton(plain))))
    except OSError:
        return plain


def is_address(spelled: str) -> bool:
    """Return whether a host from `numeric` is an IP address."""
    try:
        ip_address(spelled)
    except ValueError:
        return False
    return True


def _ends(address: str) -> frozenset[str]:
    """Return the addresses at which packets to an IP address may arrive."""
    if class_of(address) == AddressClass.LOOPBACK:
        return frozenset({THIS_MACHINE})
    return frozenset(carried(address))


def _parts(path: str) -> tuple[str, ...]:
    return tuple(part for part in path.split("/") if part not in ("", "."))


def _covers(folder: Sequence[str], whole: Sequence[str]) -> bool:
    return _elsewhere(folder) or _elsewhere(whole) or _same(whole[: len(folder)], folder)


def _same(one: Sequence[str], other: Sequence[str]) -> bool:
    """Return whether a server may treat two paths as the same."""
    return [*map(folded, one)] == [*map(folded, other)]


def _elsewhere(parts: Sequence[str]) -> bool:
    """Return whether only the server can interpret a path: a user's home, or a name of dots or blanks."""
    return bool(parts) and (parts[0].startswith("~") or any(part != ".." and not folded(part) for part in parts))


def _inside(folder: Sequence[str], whole: Sequence[str]) -> str:
    """Return the path in the collection; if unknown, the root, so that only rules for the whole collection apply."""
    return "/" if _elsewhere(folder) or _elsewhere(whole) else "/" + "/".join(whole[len(folder) :])
