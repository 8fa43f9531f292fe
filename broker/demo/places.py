"""Sites, endpoints, collections, datasets and replicas of the demonstration in the database, with their dates."""

from collections.abc import Iterator
from typing import NamedTuple
from uuid import NAMESPACE_DNS, UUID, uuid4, uuid5

from sqlalchemy.ext.asyncio import AsyncConnection

from broker.demo.world import DAY, WEEKS, World
from broker.models.collections import AccessRule
from broker.storage.catalogue import CatalogueStore, Registrar
from broker.storage.collections import CollectionStore
from broker.storage.database import Database, retried
from broker.storage.places import PlaceStore
from broker.storage.tokens import TokenStore

__all__ = ["ADMIN", "Note", "collection", "note", "place"]

ADMIN = "admin"
FIRST = WEEKS * 7 * DAY + 3600
"""Seconds from the creation of the first site to the end of the history."""


class Note(NamedTuple):
    """An entry of the audit log."""

    at: float
    subject: str
    action: str
    thing: str


def collection(name: str) -> UUID:
    """Return the id of a collection of the demonstration, which is always the same."""
    return uuid5(NAMESPACE_DNS, f"{name.replace(' ', '-').lower()}.example")


@retried
async def place(database: Database, made: World, end: float) -> list[Note]:
    """Store the sites, endpoints, collections, datasets and replicas; return the notes for the audit log."""
    async with database.write() as connection:
        await _places(connection, made, end - FIRST)
        await _catalogue(connection, made, end)
    return list(_notes(made, end))


@retried
async def note(database: Database, notes: list[Note]) -> None:
    """Add these entries to the audit log, in the order of time."""
    async with database.write() as connection:
        for each in sorted(notes):
            await TokenStore(connection).note(*each)


async def _places(connection: AsyncConnection, made: World, now: float) -> None:
    for site in made.sites:
        await PlaceStore(connection).put_site(site)
    for endpoint in made.endpoints:
        await PlaceStore(connection).put_endpoint(endpoint)
    for each in made.collections:
        number = await CollectionStore(connection).put(collection(each.name), ADMIN, each, now)
        rule = AccessRule(principal_type="all_authenticated_users", permissions="rw", id=uuid4())
        await CollectionStore(connection).add_rule(number, rule, now)


async def _catalogue(connection: AsyncConnection, made: World, end: float) -> None:
    catalogue, first = CatalogueStore(connection), end - FIRST
    await catalogue.add([each.name for each in made.datasets], first)
    known = await catalogue.known(each.name for each in made.datasets)
    await catalogue.set_sizes({known[each.name].id: each.size for each in made.datasets if each.size is not None})
    await catalogue.add_checksums(
        (each.name, *checksum) for each in made.datasets for checksum in each.checksums.items()
    )
    await catalogue.put_replicas(made.replicas, first, Registrar(ADMIN, admin=True, owner=True))
    for bad in made.bad:
        await catalogue.put_replicas([bad.replica], end - bad.age)


def _notes(made: World, end: float) -> Iterator[Note]:
    for i, site in enumerate(made.sites):
        yield Note(end - FIRST + i, ADMIN, "put site", site.name)
    for i, endpoint in enumerate(made.endpoints):
        yield Note(end - FIRST + 60 + i, ADMIN, "put endpoint", endpoint.name)
    for i, each in enumerate(made.collections):
        yield Note(end - FIRST + 120 + i, ADMIN, "put collection", each.name)
    names = sorted(each.name for each in made.datasets)
    yield Note(end - FIRST + 180, "cleo", "import", f"{len(names)} datasets, {names[0]} to {names[-1]}")
    for bad in made.bad:
        thing = f"{bad.replica.dataset} at {bad.replica.endpoint}: {bad.replica.reason.partition(': ')[2]}"
        yield Note(end - bad.age, bad.by, "mark bad", thing)
