"""Collections, which admins create for Globus clients to use."""

from typing import Annotated
from uuid import UUID

from fastapi import Path, status

from broker.dependencies.context import Services
from broker.dependencies.route_policies import Admin, Reader
from broker.errors import Invalid
from broker.handlers.routers import own_router
from broker.models.base import Wire
from broker.models.callers import Caller
from broker.models.collections import AccessRule, Collection, NewCollection, NewRule, Title, UsableCollection
from broker.services.collections.collections import VisibleCollection

__all__ = ["router"]

router = own_router("collections")
Name = Annotated[Title, Path()]


class CollectionPage(Wire):
    """A list of collections, with all fields for collections whose access rules the caller may change."""

    collections: list[Collection | UsableCollection]


class Rules(Wire):
    """The access rules of a collection."""

    rules: list[AccessRule]


@router.get("/collections")
async def collections(caller: Reader, services: Services) -> CollectionPage:
    """List the collections to which the caller has any access, by name; admins see all."""
    seen = await services.collections.visible(caller)
    return CollectionPage.model_construct(collections=[_document(each, caller) for each in seen])


def _document(seen: VisibleCollection, caller: Caller) -> Collection | UsableCollection:
    if seen.managed_by(caller) and (seen.collection.share is None or caller.may("admin")):
        return seen.collection
    return UsableCollection(**{name: getattr(seen.collection, name) for name in UsableCollection.model_fields})


@router.get("/collections/{name}")
async def collection(name: Name, caller: Admin, services: Services) -> Collection:
    """Return one collection."""
    return await services.collections.called(name)


@router.put("/collections/{name}")
async def put_collection(name: Name, collection: NewCollection, caller: Admin, services: Services) -> Collection:
    """Create or change a collection."""
    if collection.name != name:
        raise Invalid(
            f"the address has the name {name}, but the body has {collection.name}", "send the same name in both"
        )
    return await services.collections.put(caller.subject, collection)


@router.delete("/collections/{name}", status_code=status.HTTP_204_NO_CONTENT)
async def remove_collection(name: Name, caller: Admin, services: Services) -> None:
    """Delete a collection and its access rules. No files are deleted."""
    await services.collections.remove(caller.subject, name)


@router.get("/collections/{name}/rules")
async def rules(name: Name, caller: Admin, services: Services) -> Rules:
    """List the access rules of a collection."""
    number = (await services.collections.called(name)).id
    return Rules.model_construct(rules=list(await services.collections.rules(caller, number)))


@router.post("/collections/{name}/rules", status_code=status.HTTP_201_CREATED)
async def grant(name: Name, rule: NewRule, caller: Admin, services: Services) -> AccessRule:
    """Grant access to a path of a collection; a second grant to the same principal changes the first one."""
    return await services.collections.add_rule(caller, (await services.collections.called(name)).id, rule)


@router.delete("/collections/{name}/rules/{number}", status_code=status.HTTP_204_NO_CONTENT)
async def take_back(name: Name, number: UUID, caller: Admin, services: Services) -> None:
    """Revoke a grant."""
    await services.collections.remove_rule(caller, (await services.collections.called(name)).id, number)
