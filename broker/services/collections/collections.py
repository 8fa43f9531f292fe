"""Collections: admins create them, owners share them, and users see those to which they have access."""

import asyncio
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple
from uuid import UUID, uuid4

from sqlalchemy.ext.asyncio import AsyncConnection

from broker.errors import AlreadyGranted, Conflict, Forbidden, Invalid, NoCollection, NotFound, NotGranted
from broker.models.callers import Caller
from broker.models.collections import AccessRule, Collection, NewCollection, NewRule, SharedFolder
from broker.models.identities import named
from broker.models.identities import number as numbered
from broker.services.auth.permissions import Reach, granted, reach_of
from broker.services.collection_paths import normal
from broker.storage.collections import CollectionStore as Stored
from broker.storage.database import Database, retried
from broker.storage.subjects import IdentityStore
from broker.storage.tokens import TokenStore

__all__ = ["CollectionUse", "Collections", "VisibleCollection"]

MOST_SHARED = 100
"""Most guest collections of one owner."""
MANY = 1000
"""Number of uses above which a thread checks them, since the event loop would stand still."""
MOST_RULES = 1000
"""Most access rules of a guest collection."""


class CollectionUse(NamedTuple):
    """An intended use of a collection: to read or write a path."""

    collection: UUID
    path: str
    writes: bool = False


class VisibleCollection(NamedTuple):
    """A collection that a caller may see, with its access rules."""

    collection: Collection
    rules: Sequence[AccessRule]

    @property
    def public(self) -> bool:
        """Return whether all authenticated users may see the collection."""
        return any(rule.principal_type in ("anonymous", "all_authenticated_users") for rule in self.rules)

    def managed_by(self, caller: Caller) -> bool:
        """Return whether the caller may change the collection's access rules, as its owner and admins may."""
        return caller.subject == self.collection.owner or caller.may("admin")


class Collections:
    """All collections, and their access rules."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def all(self) -> list[Collection]:
        """Return all collections by name, without a check of permissions."""
        async with self._database.read() as connection:
            return await Stored(connection).all()

    async def visible(self, caller: Caller) -> list[VisibleCollection]:
        """Return the collections to which the caller has any access, by name, with some rules for each principal."""
        async with self._database.read() as connection:
            stored = Stored(connection)
            rules = await stored.principals(caller.subject)
            every = [VisibleCollection(each, rules.get(str(each.id), ())) for each in await stored.all()]
        return [each for each in every if granted(caller, *each)]

    async def named(self, numbers: Iterable[str]) -> dict[str, Collection]:
        """Return the existing collections with these ids, without a check of permissions, for the display of tasks."""
        async with self._database.read() as connection:
            return {str(each.id): each for each in await Stored(connection).all(set(numbers))}

    async def one(self, caller: Caller, number: UUID) -> VisibleCollection:
        """Return a collection. :raises NoCollection: when it does not exist, or the caller may not see it"""
        async with self._database.read() as connection:
            return await self._seen(connection, caller, number)

    async def allow(self, caller: Caller, uses: Sequence[CollectionUse]) -> dict[UUID, Reach]:
        """Check that the caller is allowed all uses; return the caller's rights in each collection.

        :raises NoCollection: when the caller may not see one of the collections
        :raises NotGranted: when the caller may not use a path
        """
        found: dict[UUID, Reach] = {}
        async with self._database.read() as connection:
            for number in dict.fromkeys(use.collection for use in uses):
                known, rules = await Stored(connection).around([str(number)])
                collection = known.get(str(number))
                if collection is None or not granted(caller, collection, rules.get(str(number), ())):
                    raise _no_collection(number)
                found[number] = reach_of(caller, collection, known, rules)
        if len(uses) > MANY:
            await asyncio.to_thread(_check, uses, found)
        else:
            _check(uses, found)
        return found

    @staticmethod
    async def _seen(connection: AsyncConnection, caller: Caller, number: UUID) -> VisibleCollection:
        stored, key = Stored(connection), str(number)
        for found in await stored.all([key]):
            seen = VisibleCollection(found, (await stored.rules([key])).get(key, ()))
            if granted(caller, *seen):
                return seen
        raise _no_collection(number)

    @retried
    async def put(self, by: str, new: NewCollection) -> Collection:
        """Create a collection, or change the one with this name. :raises NotFound: when its endpoint does not exist"""
        now = time.time()
        async with self._database.write() as connection:
            stored = Stored(connection)
            number = await stored.put(uuid4(), by, new, now)
            await TokenStore(connection).note(now, by, "put collection", new.name)
            return (await stored.all([str(number)]))[0]

    @retried
    async def remove(self, by: str, name: str) -> None:
        """Remove a collection and its rules; no file is touched. :raises NotFound:"""
        async with self._database.write() as connection:
            await Stored(connection).remove((await self._called(connection, name)).id)
            await TokenStore(connection).note(time.time(), by, "remove collection", name)

    @retried
    async def share(self, caller: Caller, host: UUID, path: str, name: str, description: str) -> Collection:
        """Share a directory of a collection as a new guest collection of the caller.

        Rules that name the caller or all users must let the caller read the directory. Rules for roles do not count,
        since the broker does not know the caller's role when a guest uses the collection.

        :raises NoCollection: :raises NotGranted: when the caller may not read the directory
        :raises Invalid: when the collection is a guest collection, or does not allow sharing
        :raises Conflict: when a collection has this name, or the caller has too many guest collections
        """
        folder, now = normal(path).rstrip("/") + "/", time.time()
        async with self._database.write() as connection:
            stored = Stored(connection)
            found = (await self._seen(connection, caller, host)).collection
            if found.share is not None or not found.sharing:
                raise Invalid(f"directories of {found.name} cannot be shared", "share one of another collection")
            guest = Collection(
                id=uuid4(),
                name=name,
                description=description,
                owner=caller.subject,
                created_at=now,
                endpoint=found.endpoint,
                share=SharedFolder(host=host, base=found.base, folder=folder, allowed=True),
            )
            if not reach_of(caller, guest, *await stored.around([str(host)])).may("/", writes=False):
                raise NotGranted(f"{caller.subject} may not share {folder} of {found.name}", "ask its owner for a rule")
            if await stored.shared_by(caller.subject) >= MOST_SHARED:
                raise Conflict(f"{caller.subject} has {MOST_SHARED} guest collections", "delete some of them")
            await stored.share(guest, host, folder)
            await TokenStore(connection).note(now, caller.subject, "share", f"{folder} of {found.name} as {name}")
        return guest

    @retried
    async def unshare(self, caller: Caller, number: UUID) -> None:
        """Delete a guest collection; no file is touched.

        :raises NoCollection: :raises Forbidden: unless its owner or an admin calls
        :raises Invalid: when it is no guest collection
        """
        async with self._database.write() as connection:
            collection = (await self._managed(connection, caller, number)).collection
            if collection.share is None:
                raise Invalid(f"{collection.name} is no guest collection", "ask an admin to delete it")
            await Stored(connection).remove(number)
            await TokenStore(connection).note(time.time(), caller.subject, "remove collection", collection.name)

    async def called(self, name: str) -> Collection:
        """Return the collection with this name. :raises NotFound:"""
        async with self._database.read() as connection:
            return await self._called(connection, name)

    @staticmethod
    async def _called(connection: AsyncConnection, name: str) -> Collection:
        for each in await Stored(connection).all():
            if each.name == name:
                return each
        raise NotFound(f"there is no collection {name}", "choose one listed by GET /broker/v1/collections")

    async def rules(self, caller: Caller, number: UUID) -> Sequence[AccessRule]:
        """Return the access rules. :raises NoCollection: :raises Forbidden: unless the owner or an admin calls"""
        async with self._database.read() as connection:
            return (await self._managed(connection, caller, number)).rules

    async def rule(self, caller: Caller, number: UUID, rule: UUID) -> AccessRule:
        """Return an access rule.

        :raises NoCollection: :raises NotFound: :raises Forbidden: unless the owner or an admin calls
        """
        for each in await self.rules(caller, number):
            if each.id == rule:
                return each
        raise _no_rule(rule)

    @retried
    async def describe(self, caller: Caller, number: UUID, name: str | None, description: str | None) -> None:
        """Change the name of a guest collection, or the description of any collection; None changes nothing.

        :raises NoCollection: :raises Forbidden: unless the owner or an admin calls
        :raises Invalid: for another name of a collection that is no guest collection
        :raises Conflict: when a collection has this name
        """
        now = time.time()
        async with self._database.write() as connection:
            collection = (await self._managed(connection, caller, number)).collection
            audit = TokenStore(connection)
            if name is not None and name != collection.name:
                if collection.share is None:
                    raise Invalid(
                        f"{collection.name} is no guest collection, so its name cannot be changed", "leave the name out"
                    )
                await Stored(connection).rename(number, name)
                await audit.note(now, caller.subject, "rename collection", f"{collection.name} to {name}")
            if description is not None:
                await Stored(connection).describe(number, description)
                await audit.note(now, caller.subject, "describe collection", name or collection.name)

    @retried
    async def add_rule(self, caller: Caller, number: UUID, new: NewRule, replace: bool = True) -> AccessRule:
        """Add a rule, or replace the rule for the same principal and path.

        :raises NoCollection: :raises Forbidden: :raises Conflict: when a guest collection has too many rules
        :raises AlreadyGranted: when there is such a rule, and `replace` is False
        """
        now = time.time()
        path = normal(new.path).rstrip("/") + "/"
        async with self._database.write() as connection:
            collection, known = await self._managed(connection, caller, number)
            principal = await _normal(connection, new)
            rule = AccessRule(**{**new.model_dump(), "path": path, "principal": principal}, id=uuid4())
            stored = Stored(connection)
            for each in known:
                if _same(each, rule):
                    await stored.rename_rule(each.id, principal)
            added = await stored.add_rule(number, rule, now)
            if not (added or replace):
                raise AlreadyGranted(
                    f"{collection.name} has a rule for {rule.principal or rule.principal_type} and {path}",
                    "change that rule, or delete it first",
                )
            if added and collection.share is not None and len(known) >= MOST_RULES:
                raise Conflict(f"{collection.name} has {MOST_RULES} access rules", "remove some of them")
            description = (
                f"{collection.name}: {rule.permissions} {path} to {rule.principal_type} {rule.principal}".rstrip()
            )
            await TokenStore(connection).note(now, caller.subject, "grant", description)
            rules = (await stored.rules([str(number)]))[str(number)]
        same = (rule.principal_type, rule.principal, path)
        return next(each for each in rules if (each.principal_type, each.principal, each.path) == same)

    @retried
    async def remove_rule(self, caller: Caller, number: UUID, rule: UUID) -> None:
        """Remove an access rule. :raises NoCollection: :raises NotFound: :raises Forbidden:"""
        async with self._database.write() as connection:
            collection, _ = await self._managed(connection, caller, number)
            if not await Stored(connection).remove_rule(number, str(rule)):
                raise _no_rule(rule)
            await TokenStore(connection).note(
                time.time(), caller.subject, "take back", f"{collection.name}: rule {rule}"
            )

    async def _managed(self, connection: AsyncConnection, caller: Caller, number: UUID) -> VisibleCollection:
        seen = await self._seen(connection, caller, number)
        if not seen.managed_by(caller):
            raise Forbidden(f"{caller.subject} does not own {seen.collection.name}", "ask its owner, or an admin")
        return seen


async def _normal(connection: AsyncConnection, new: NewRule) -> str:
    """Return the stored form of a rule's principal: for a UUID, its subject if known, else the UUID in lower case."""
    if new.principal_type != "identity":
        return new.principal
    number = numbered(new.principal)
    if number is None:
        return new.principal
    for each in await IdentityStore(connection).by_id([number]):
        return each.subject
    return str(number)


def _same(known: AccessRule, new: AccessRule) -> bool:
    """Return whether two rules are for the same path and identity, which they may name by subject and by UUID."""
    both = known.principal_type == new.principal_type == "identity" and known.path == new.path
    return both and (known.principal == new.principal or named(known.principal) == named(new.principal))


def _check(uses: Iterable[CollectionUse], reaches: Mapping[UUID, Reach]) -> None:
    """Check that all uses are allowed. :raises NotGranted: naming the first that is not"""
    for number, path, writes in uses:
        if not (reach := reaches[number]).may(path, writes):
            action = f"{'write to' if writes else 'read'} {path} of {reach.collection.name}"
            raise NotGranted(f"{reach.caller.subject} may not {action}", "ask its owner, or an admin")


def _no_collection(number: UUID) -> NoCollection:
    return NoCollection(f"there is no collection {number}", "search for collections that you may use")


def _no_rule(rule: UUID) -> NotFound:
    return NotFound(f"there is no rule {rule}", "choose one from the list of the collection's rules")
