"""Unconfirmed replicas inside collections, which the collections' owners and admins can list and confirm."""

import time
from collections.abc import Sequence
from urllib.parse import unquote

from sqlalchemy.ext.asyncio import AsyncConnection

from broker.errors import Forbidden, NotFound
from broker.models.callers import Caller
from broker.models.catalogue import ConfirmedReplica, UnconfirmedReplica
from broker.models.names import split
from broker.services.catalogue.enclosing import Enclosing, Enclosure, Readable, confirmed
from broker.storage.collections import CollectionStore
from broker.storage.database import Database, retried
from broker.storage.places import Placed, PlaceStore
from broker.storage.registrations import Registrations, ReplicaRegistration, Stated
from broker.storage.tokens import TokenStore

__all__ = ["Confirming"]

PART = 1000
"""Replicas that one query examines."""


class Confirming:
    """Confirmations of replicas inside collections, by the collections' owners and by admins."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def unconfirmed(self, caller: Caller, after: str, endpoint: str, limit: int) -> list[UnconfirmedReplica]:
        """Return unconfirmed replicas inside collections that the caller owns; for admins, inside any collection.

        They are sorted by dataset and endpoint.

        :param after: dataset of the last replica of the previous page, at `endpoint`
        :param limit: most replicas to return
        """
        found: list[UnconfirmedReplica] = []
        async with self._database.read() as connection:
            enclosing = Enclosing(await CollectionStore(connection).folders())
            placed = {each.id: each for each in await PlaceStore(connection).endpoints()}
            near = [number for number, each in placed.items() if enclosing.near(each.endpoint)]
            while near and len(found) < limit:
                page = await Registrations(connection).unopened(near, after, endpoint, PART)
                found += [
                    replica for each in page if (replica := _for_caller(each, placed[each.endpoint], enclosing, caller))
                ]
                if len(page) < PART:
                    break
                after, endpoint = page[-1].dataset, placed[page[-1].endpoint].endpoint.name
        return found[:limit]

    @retried
    async def confirm(self, caller: Caller, named: Sequence[ConfirmedReplica]) -> None:
        """Confirm replicas at their current URLs, so that all users of the catalogue may read them.

        :raises NotFound: when a replica does not exist, or the caller may not see it
        :raises Forbidden: when a replica is in no collection of the caller
        """
        now = time.time()
        async with self._database.write() as connection:
            enclosing = Enclosing(await CollectionStore(connection).folders())
            readable = await Readable.of(connection, caller)
            placed = {each.id: each for each in await PlaceStore(connection).endpoints()}
            known: dict[str, list[Stated]] = {}
            for each in await Registrations(connection).of(list(dict.fromkeys(one.dataset for one in named))):
                known.setdefault(each.dataset, []).append(each)
            for one in named:
                for stated in _meant(one, known.get(one.dataset, ()), placed, enclosing, readable, caller):
                    await _confirm(connection, stated, placed[stated.endpoint], caller)
                await TokenStore(connection).note(
                    now, caller.subject, "confirm replica", f"{one.dataset} at {one.url}"[:500]
                )


def _meant(
    one: ConfirmedReplica,
    known: Sequence[Stated],
    placed: dict[int, Placed],
    enclosing: Enclosing,
    readable: Readable,
    caller: Caller,
) -> list[Stated]:
    """Return the replicas with this URL that the caller may confirm. :raises Forbidden: :raises NotFound:"""
    found = []
    for each in known:
        at = placed[each.endpoint]
        if unquote(one.url) != unquote(at.endpoint.url(_path(each))):
            continue
        around = enclosing.around(at.endpoint, _path(each))
        if caller.may("admin") or any(caller.subject == inside.collection.owner for inside in around):
            found.append(each)
        elif caller.may("curator") or readable.opens(at, each.dataset, each.path, each.registration):
            raise Forbidden(
                f"{one.dataset} at {one.url} is not in a collection of {caller.subject}", "ask its owner, or an admin"
            )
    if not found:
        raise NotFound(
            f"there is no replica of {one.dataset} at {one.url}",
            "choose a URL listed by GET /broker/v1/replicas/unconfirmed",
        )
    return found


async def _confirm(connection: AsyncConnection, stated: Stated, at: Placed, caller: Caller) -> None:
    before = stated.registration
    if before.admin and before.moves == at.moves:  # valid for all collections already
        return
    registration = ReplicaRegistration(caller.subject, caller.may("admin"), at.moves)
    await Registrations(connection).register(stated._replace(registration=registration))


def _for_caller(each: Stated, at: Placed, enclosing: Enclosing, caller: Caller) -> UnconfirmedReplica | None:
    """Return an unconfirmed replica with the collections in which the caller may confirm it; None without any."""
    around: list[Enclosure] = enclosing.around(at.endpoint, _path(each))
    mine = [
        inside.collection.name
        for inside in around
        if (caller.may("admin") or inside.collection.owner == caller.subject)
        and not confirmed(each.registration, at, inside.collection)
    ]
    if not mine:
        return None
    return UnconfirmedReplica.model_construct(
        dataset=each.dataset,
        endpoint=at.endpoint.name,
        url=at.endpoint.url(_path(each)),
        collections=sorted(mine),
        registered_by=each.registration.by,
    )


def _path(each: Stated) -> str:
    return each.path or split(each.dataset).name
