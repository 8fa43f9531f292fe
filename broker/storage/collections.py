"""Collections in the database, with their access rules, bookmarks and pause rules."""

from collections.abc import Collection as Some
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple
from uuid import UUID

from sqlalchemy import Row, Select, and_, case, delete, func, or_, outerjoin, select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection

from broker.errors import Conflict, NotFound
from broker.models.catalogue import Endpoint
from broker.models.collections import AccessRule, Bookmark, Collection, NewCollection, PauseRule, SharedFolder
from broker.schema.access import identities, locks
from broker.schema.catalogue import endpoints
from broker.schema.collections import (
    access_rules,
    bookmarks,
    collections,
    credential_places,
    former_folders,
    pause_rules,
    shares,
)
from broker.storage.dialects import insert

__all__ = ["CollectionFolder", "CollectionStore", "Limited"]

GUEST = "guest"
"""The kind of rows of guest collections; as models, they have the kind of their host."""
FIELDS = [collections.c[name] for name in Collection.model_fields if name not in ("endpoint", "share")]
LOCKED = select(locks.c.subject)
HOSTS = collections.alias("hosts")
AS_HOST = ("kind", "site", "credential")
"""Columns whose values a guest collection has from its host."""
SHARED = [
    shares.c.host_id,
    shares.c.folder,
    *(HOSTS.c[name].label(f"host_{name}") for name in (*AS_HOST, "base", "sharing")),
]
RULE = [access_rules.c[name] for name in AccessRule.model_fields]
NAMED = func.coalesce(identities.c.subject, access_rules.c.principal).label("principal")
WITH_NAMES = outerjoin(
    access_rules,
    identities,
    and_(access_rules.c.principal_type == "identity", access_rules.c.principal == identities.c.id),
)
RULES = (
    select(access_rules.c.collection_id, *(NAMED if column.name == "principal" else column for column in RULE))
    .select_from(WITH_NAMES)
    .order_by(access_rules.c.created_at, access_rules.c.id)
)
OTHERS = str(UUID(int=0))
"""A UUID that no identity has, in place of identities that do not matter."""
BOOKMARK = [bookmarks.c[name] for name in Bookmark.model_fields]
PAUSE = [pause_rules.c[name] for name in PauseRule.model_fields]


class Limited(NamedTuple):
    """A collection with a rate limit, and the URL of its directory if it has an endpoint."""

    id: str
    rate: float
    url: str | None

    def has(self, urls: Iterable[str]) -> bool:
        """Return whether one of these URLs lies in the collection's directory."""
        return self.url is not None and any(url.startswith(self.url) for url in urls)


class CollectionFolder(NamedTuple):
    """A collection at an endpoint, and the endpoint's address."""

    collection: Collection
    endpoint: Endpoint


class CollectionStore:
    """Collections, access rules, bookmarks and pause rules."""

    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection

    async def all(self, numbers: Some[str] | None = None) -> list[Collection]:
        """Return all collections by name, or those with these ids, without guest collections of locked subjects."""
        joined = collections.outerjoin(shares, shares.c.collection_id == collections.c.id)
        joined = joined.outerjoin(HOSTS, HOSTS.c.id == shares.c.host_id)
        at = func.coalesce(HOSTS.c.endpoint_id, collections.c.endpoint_id)
        query = select(*FIELDS, endpoints.c.name.label("endpoint"), *SHARED)
        query = query.select_from(joined.outerjoin(endpoints, endpoints.c.id == at)).order_by(collections.c.name)
        shared = and_(shares.c.host_id.is_not(None), collections.c.owner.not_in(LOCKED))
        query = query.where(or_(collections.c.kind != GUEST, shared))
        chosen = query if numbers is None else query.where(collections.c.id.in_(list(numbers)))
        return [_collection(row) for row in await self._connection.execute(chosen)]

    async def around(self, numbers: Some[str]) -> tuple[dict[str, Collection], dict[str, list[AccessRule]]]:
        """Return the collections with these ids and the hosts of guest collections among them, with all their rules."""
        found = {str(each.id): each for each in await self.all(numbers)}
        hosts = {str(each.share.host) for each in found.values() if each.share} - found.keys()
        found |= {str(each.id): each for each in await self.all(hosts)} if hosts else {}
        return found, await self.rules(found.keys())

    async def hosts(self, numbers: Some[str]) -> dict[str, str]:
        """Return the hosts of the guest collections among these collections, by id."""
        rows = await self._connection.execute(select(shares).where(shares.c.collection_id.in_(list(numbers))))
        return {row.collection_id: row.host_id for row in rows}

    async def names(self, numbers: Some[str]) -> dict[str, str]:
        """Return the names of these collections, by id."""
        rows = await self._connection.execute(
            select(collections.c.id, collections.c.name).where(collections.c.id.in_(list(numbers)))
        )
        return {row.id: row.name for row in rows}

    async def share(self, guest: Collection, host: UUID, folder: str) -> None:
        """Add a guest collection for a directory of a collection.

        :raises Conflict: when a collection has this name
        """
        values = guest.model_dump(exclude={"share", "endpoint"}) | {"id": str(guest.id), "kind": GUEST}
        once = insert(self._connection, collections).values({**values, "base": "/", "rate_until": 0.0})
        added = once.on_conflict_do_nothing(index_elements=["name"]).returning(collections.c.id)
        if (await self._connection.execute(added)).scalar() is None:
            raise _name_in_use(guest.name)
        row = {"collection_id": str(guest.id), "host_id": str(host), "folder": folder}
        await self._connection.execute(shares.insert().values(row))

    async def shared_by(self, owner: str) -> int:
        """Return the number of a user's guest collections."""
        mine = select(func.count()).select_from(collections.join(shares, shares.c.collection_id == collections.c.id))
        return int((await self._connection.execute(mine.where(collections.c.owner == owner))).scalar_one())

    async def describe(self, number: UUID, description: str) -> None:
        """Change the description of a collection."""
        chosen = collections.update().where(collections.c.id == str(number))
        await self._connection.execute(chosen.values(description=description))

    async def rename(self, number: UUID, name: str) -> None:
        """Change the name of a collection. :raises Conflict: when another collection has this name"""
        chosen = collections.update().where(collections.c.id == str(number))
        try:
            await self._connection.execute(chosen.values(name=name))
        except IntegrityError:
            raise _name_in_use(name) from None

    async def owns(self, subject: str) -> bool:
        """Return whether this subject owns any collection other than guest collections."""
        query = select(collections.c.id).where(collections.c.owner == subject, collections.c.kind != GUEST).limit(1)
        return (await self._connection.execute(query)).first() is not None

    async def at(self, endpoint: str) -> list[Collection]:
        """Return all collections at an endpoint, by name, without guest collections."""
        return [each for each in await self.all() if each.endpoint == endpoint and each.share is None]

    async def ends(self) -> dict[str, tuple[str | None, str]]:
        """Return the endpoint (None without one) and the stated site of each collection, by id."""
        joined = select(collections.c.id, endpoints.c.name, collections.c.site).outerjoin_from(collections, endpoints)
        return {row.id: (row.name, row.site) for row in await self._connection.execute(joined)}

    async def folders(self) -> list[CollectionFolder]:
        """Return the directories of all collections at endpoints, and former directories that non-admins moved.

        Guest collections are left out, since their owners have no rights of owners in the catalogue.
        """
        where = [endpoints.c[name] for name in ("scheme", "host", "port", "prefix")]
        found = []
        for row in await self._connection.execute(select(*FIELDS, *where).join_from(collections, endpoints)):
            values = dict(row._mapping)
            at = Endpoint.model_construct(**{column.name: values.pop(column.name) for column in where})
            found.append(
                CollectionFolder(Collection.model_construct(**{**values, "id": UUID(row.id), "endpoint": None}), at)
            )
        former = select(*FIELDS, former_folders.c.host, former_folders.c.folder).join_from(collections, former_folders)
        for row in await self._connection.execute(former):
            values = dict(row._mapping)
            at = Endpoint.model_construct(scheme="ftp", host=values.pop("host"), port=None, prefix=values.pop("folder"))
            values |= {"id": UUID(row.id), "endpoint": None, "base": "/"}
            found.append(CollectionFolder(Collection.model_construct(**values), at))
        return found

    async def keep_folder(self, collection: UUID, host: str, folder: str) -> None:
        """Store a former directory of a collection."""
        values = {"collection_id": str(collection), "host": host, "folder": folder}
        await self._connection.execute(insert(self._connection, former_folders).values(values).on_conflict_do_nothing())

    async def forget_folders(self, endpoint: str) -> None:
        """Delete the former directories of the collections at an endpoint."""
        these = select(collections.c.id).join_from(collections, endpoints).where(endpoints.c.name == endpoint)
        await self._connection.execute(delete(former_folders).where(former_folders.c.collection_id.in_(these)))

    async def limited(self) -> list[Limited]:
        """Return all collections that have a rate limit."""
        where = [endpoints.c[name] for name in ("scheme", "host", "port", "prefix")]
        joined = select(collections.c.id, collections.c.rate, collections.c.base, *where).outerjoin_from(
            collections, endpoints
        )
        rows = await self._connection.execute(joined.where(collections.c.rate.is_not(None)))
        return [Limited(row.id, row.rate, row.scheme and _url(row)) for row in rows]

    async def places(self) -> dict[str, list[str]]:
        """Return the stored directory URLs of credentials whose entry in the TOML file has no `for`, by credential."""
        columns = credential_places.c.credential, credential_places.c.url
        found: dict[str, list[str]] = {}
        for row in await self._connection.execute(select(*columns).order_by(*columns)):
            found.setdefault(row.credential, []).append(row.url)
        return found

    async def put(self, number: UUID, owner: str, new: NewCollection, now: float) -> UUID:
        """Create a collection, or change the one with this name; return its id.

        :raises NotFound: when the endpoint does not exist
        :raises Conflict: when a guest collection has this name
        """
        endpoint = None
        if new.endpoint is not None:
            found = await self._connection.execute(select(endpoints.c.id).where(endpoints.c.name == new.endpoint))
            endpoint = found.scalar()
            if endpoint is None:
                raise NotFound(f"there is no endpoint {new.endpoint}", "create it first: PUT /broker/v1/endpoints/NAME")
        values = new.model_dump(exclude={"endpoint"})
        made = {"id": str(number), "owner": owner, "created_at": now, "rate_until": 0.0, "endpoint_id": endpoint}
        once = insert(self._connection, collections).values(**values, **made)
        changes = {name: once.excluded[name] for name in (*values, "endpoint_id") if name != "name"}
        put = once.on_conflict_do_update(index_elements=["name"], set_=changes, where=collections.c.kind != GUEST)
        changed = (await self._connection.execute(put.returning(collections.c.id))).scalar()
        if changed is None:
            raise Conflict(f"{new.name} is a guest collection", "choose another name, or delete it first")
        return UUID(changed)

    async def remove(self, number: UUID) -> None:
        """Delete a collection, and the guest collections that share its directories.

        :raises NotFound: when it does not exist
        """
        guests = select(shares.c.collection_id).where(shares.c.host_id == str(number))
        await self._connection.execute(delete(collections).where(collections.c.id.in_(guests)))
        done = await self._connection.execute(delete(collections).where(collections.c.id == str(number)))
        if not done.rowcount:
            raise NotFound(f"there is no collection {number}", "choose one listed by GET /broker/v1/collections")

    async def rules(self, numbers: Some[str] | None = None) -> dict[str, list[AccessRule]]:
        """Return the access rules of all collections, or of those with these ids, by collection.

        The principal of a known identity is its subject.
        """
        chosen = RULES if numbers is None else RULES.where(access_rules.c.collection_id.in_(list(numbers)))
        return await self._by_collection(chosen)

    async def rules_for(self, subject: str) -> dict[str, list[AccessRule]]:
        """Return the rules that may fit a subject, of all collections except guest collections, by collection."""
        hosts = select(collections.c.id).where(collections.c.kind != GUEST)
        fits = or_(access_rules.c.principal_type != "identity", NAMED.in_([subject]))
        return await self._by_collection(RULES.where(access_rules.c.collection_id.in_(hosts), fits))

    async def principals(self, subject: str) -> dict[str, list[AccessRule]]:
        """Return one rule of each collection for each principal and permission, with any of the principal's paths.

        The rules of all identities other than this subject count as those of one identity.
        """
        others = and_(access_rules.c.principal_type == "identity", NAMED.not_in([subject]))
        principal = case((others, OTHERS), else_=NAMED).label("principal")
        named = (principal if each.name == "principal" else each for each in RULE)
        found = select(access_rules.c.collection_id, *named).select_from(WITH_NAMES).subquery("found")
        some = [func.min(found.c[each.name]) if each.name in ("id", "path") else found.c[each.name] for each in RULE]
        group = [each for each in found.c if each.name not in ("id", "path")]
        return await self._by_collection(select(found.c.collection_id, *some).group_by(*group))

    async def _by_collection(self, chosen: Select[Any]) -> dict[str, list[AccessRule]]:
        found: dict[str, list[AccessRule]] = {}
        for row in await self._connection.execute(chosen):
            found.setdefault(row.collection_id, []).append(_of(AccessRule, row[1:], RULE))
        return found

    async def add_rule(self, collection: UUID, rule: AccessRule, now: float) -> bool:
        """Add a rule, or change the rule for the same principal and path; return whether it is new."""
        values = {**rule.model_dump(), "id": str(rule.id), "collection_id": str(collection), "created_at": now}
        once = insert(self._connection, access_rules).values(values)
        where = ["collection_id", "principal_type", "principal", "path"]
        changed = once.on_conflict_do_update(
            index_elements=where, set_={"permissions": once.excluded.permissions}
        ).returning(access_rules.c.id)
        return bool((await self._connection.execute(changed)).scalar_one() == str(rule.id))

    async def rename_rule(self, rule: UUID, principal: str) -> None:
        """Change the principal of a rule."""
        await self._connection.execute(
            access_rules.update().where(access_rules.c.id == str(rule)).values(principal=principal)
        )

    async def remove_rule(self, collection: UUID, rule: str) -> bool:
        """Remove an access rule; return whether it existed."""
        mine = delete(access_rules).where(access_rules.c.collection_id == str(collection), access_rules.c.id == rule)
        return bool((await self._connection.execute(mine)).rowcount)

    async def bookmarks(self, owner: str) -> list[Bookmark]:
        """Return the bookmarks of a user, by name."""
        chosen = select(*BOOKMARK).where(bookmarks.c.owner == owner).order_by(bookmarks.c.name)
        return [_of(Bookmark, row, BOOKMARK) for row in await self._connection.execute(chosen)]

    async def add_bookmark(self, owner: str, bookmark: Bookmark) -> bool:
        """Add a bookmark; return whether its name was free."""
        values = {**bookmark.model_dump(mode="json"), "owner": owner}
        once = insert(self._connection, bookmarks).values(values).on_conflict_do_nothing().returning(bookmarks.c.id)
        return (await self._connection.execute(once)).scalar() is not None

    async def change_bookmark(self, owner: str, number: str, values: dict[str, Any]) -> bool:
        """Change a bookmark; return whether it existed."""
        mine = bookmarks.update().where(bookmarks.c.owner == owner, bookmarks.c.id == number).values(values)
        return bool((await self._connection.execute(mine)).rowcount)

    async def remove_bookmark(self, owner: str, number: str) -> bool:
        """Remove a bookmark; return whether it existed."""
        mine = delete(bookmarks).where(bookmarks.c.owner == owner, bookmarks.c.id == number)
        return bool((await self._connection.execute(mine)).rowcount)

    async def pauses(self, numbers: Some[str], subject: str | None = None) -> list[PauseRule]:
        """Return the pause rules of these collections; with a subject, only the rules that apply to it."""
        chosen = select(*PAUSE).where(pause_rules.c.collection_id.in_(list(numbers))).order_by(pause_rules.c.created_at)
        if subject is not None:
            chosen = chosen.where(or_(pause_rules.c.subject.is_(None), pause_rules.c.subject == subject))
        rows: Sequence[Any] = (await self._connection.execute(chosen)).all()
        return [_of(PauseRule, (*row[:4], tuple(row.operations.split()), *row[5:]), PAUSE) for row in rows]

    async def put_pause(self, rule: PauseRule) -> None:
        """Create a pause rule, or change the one with this id."""
        values = {**rule.model_dump(mode="json"), "operations": " ".join(rule.operations)}
        once = insert(self._connection, pause_rules).values(values)
        changes = {name: once.excluded[name] for name in values if name != "id"}
        await self._connection.execute(once.on_conflict_do_update(index_elements=["id"], set_=changes))

    async def remove_pause(self, number: str) -> bool:
        """Remove a pause rule; return whether it existed."""
        done = await self._connection.execute(delete(pause_rules).where(pause_rules.c.id == number))
        return bool(done.rowcount)


def _name_in_use(name: str) -> Conflict:
    return Conflict(f"there is a collection {name} already", "choose another name")


def _collection(row: Any) -> Collection:
    """Return the collection of a row; a guest collection is the shared directory of its host."""
    values = {**row._mapping, "id": UUID(row.id)}
    shared = {column.name: values.pop(column.name) for column in SHARED}
    if shared["host_id"] is not None:
        base, folder = shared["host_base"], shared["folder"]
        share = SharedFolder(host=UUID(shared["host_id"]), base=base, folder=folder, allowed=shared["host_sharing"])
        values |= {name: shared[f"host_{name}"] for name in AS_HOST}
        values |= {"base": base.rstrip("/") + folder, "share": share}
    return Collection.model_construct(**values)


def _url(row: Row[Any]) -> str:
    """Return the URL of a collection's directory, from its base and its endpoint's address."""
    at = Endpoint.model_construct(scheme=row.scheme, host=row.host, port=row.port, prefix=row.prefix)
    return at.url(row.base)


def _of(model: Any, row: Sequence[Any], columns: Sequence[Any]) -> Any:
    """Return the model of a row."""
    names = [column.name for column in columns]
    return model.model_validate(dict(zip(names, row, strict=True)))
