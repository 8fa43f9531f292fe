"""Collections for Globus clients, which call them endpoints."""

from collections.abc import Callable, Iterable, Sequence
from typing import Annotated, Any, Literal
from uuid import UUID

from fastapi import Body, Query, Request
from pydantic import ConfigDict

from broker.dependencies.context import Services
from broker.dependencies.route_policies import Reader, Transferrer
from broker.errors import Invalid, NoCollection
from broker.factory import Factory
from broker.handlers.globus import documents
from broker.handlers.globus.errors import GlobusError
from broker.handlers.globus.filters import chosen
from broker.handlers.globus.routers import CollectionId, Document, Fields, Offset, QueryText, globus_router
from broker.handlers.globus.rule_documents import pause_rules
from broker.handlers.globus.submitted_documents import ClientDocument
from broker.models.callers import Caller
from broker.models.collections import NewTitle
from broker.models.names import Remark
from broker.services.auth.identities import People
from broker.services.collections.collections import VisibleCollection
from broker.storage.tasks import TaskFilter

__all__ = ["described", "router"]

router = globus_router()
Scope = Literal[
    "all",
    "administered-by-me",
    "my-endpoints",
    "my-gcp-endpoints",
    "recently-used",
    "in-use",
    "shared-by-me",
    "shared-with-me",
]
RECENT = 100
"""Number of the newest tasks whose collections count as recently used."""


class Description(ClientDocument):
    """The changeable part of a collection; other fields are accepted here, so that the error can name them."""

    model_config = ConfigDict(extra="allow")
    DATA_TYPE: Literal["endpoint"] = "endpoint"
    display_name: NewTitle = ""
    description: Remark | None = None


@router.get("/endpoint_search")
async def search(
    caller: Reader,
    services: Services,
    filter_fulltext: QueryText = "",
    filter_scope: Scope = "all",
    filter_owner_id: UUID | None = None,
    filter_entity_type: QueryText = "",
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
    offset: Offset = 0,
    fields: Fields = "",
) -> Document:
    """List the collections that the caller may use, by name.

    `filter_fulltext`: words that must all occur in the name, description, owner, site or id.
    """
    fits = await _scope(filter_scope, caller, services)
    words, kinds = filter_fulltext.lower().split(), [each for each in filter_entity_type.split(",") if each]
    found = [
        seen
        for seen in await services.collections.visible(caller)
        if fits(seen) and all(word in _text(seen) for word in words)
        if not kinds or documents.entity_type(seen.collection) in kinds
    ]
    people = await _owners(services, found)
    found = [seen for seen in found if str(filter_owner_id or "") in ("", people.id(seen.collection.owner))]
    page = [_document(seen, people, caller) | {"_rank": 1.0} for seen in found[offset : offset + limit]]
    return {
        "DATA_TYPE": "endpoint_list",
        "limit": limit,
        "offset": offset,
        "has_next_page": len(found) > offset + limit,
        "DATA": [chosen(each, fields) for each in page],
    }


async def _scope(scope: Scope, caller: Caller, services: Factory) -> Callable[[VisibleCollection], bool]:
    """Return a function that tells whether a collection is in a search scope."""
    if scope in ("recently-used", "in-use"):
        used = await _used(caller, services, active=scope == "in-use")
        return lambda seen: str(seen.collection.id) in used
    fits: dict[str, Callable[[VisibleCollection], bool]] = {
        "all": lambda _: True,
        "my-endpoints": lambda seen: seen.collection.owner == caller.subject,
        "administered-by-me": lambda seen: seen.managed_by(caller),
        "my-gcp-endpoints": lambda _: False,
        "shared-by-me": lambda seen: seen.collection.owner == caller.subject and bool(seen.rules),
        "shared-with-me": lambda seen: seen.collection.owner != caller.subject,
    }
    return fits[scope]


async def _used(caller: Caller, services: Factory, active: bool) -> set[str | None]:
    task_filter = TaskFilter(owner=caller.subject)
    page = await services.tasks.page(
        task_filter._replace(statuses=["ACTIVE"]) if active else task_filter, [("request_time", True)], RECENT, 0
    )
    return {number for task in page.tasks for number in (task.source, task.destination)}


def _text(seen: VisibleCollection) -> str:
    known = seen.collection
    return f"{known.name} {known.description} {known.owner} {known.site} {known.id}".lower()


def _document(
    seen: VisibleCollection, people: People, caller: Caller, servers: tuple[dict[str, Any], ...] = ()
) -> Document:
    return documents.endpoint(seen.collection, people, seen.managed_by(caller), seen.public, servers)


async def described(services: Factory, seen: Sequence[VisibleCollection], caller: Caller) -> list[Document]:
    """Return the documents of collections, without their servers."""
    people = await _owners(services, seen)
    return [_document(each, people, caller) for each in seen]


async def _owners(services: Factory, seen: Iterable[VisibleCollection]) -> People:
    return await services.identities.people(each.collection.owner for each in seen)


@router.get("/endpoint/{endpoint_id}")
async def endpoint(endpoint_id: CollectionId, caller: Reader, services: Services, fields: Fields = "") -> Document:
    """Return one collection."""
    try:
        seen = await services.collections.one(caller, endpoint_id)
    except NoCollection as error:
        if endpoint_id in {each.collection_id for each in await services.bookmarks.all(caller.subject)}:
            # `globus bookmark list` shows the other bookmarks only if it gets this error code.
            raise GlobusError(404, "EndpointDeleted", error.message, "remove your bookmark of it") from None
        raise
    return chosen(_document(seen, await _owners(services, [seen]), caller, await _servers(seen, services)), fields)


async def _servers(seen: VisibleCollection, services: Factory) -> tuple[Document, ...]:
    name = seen.collection.endpoint
    return (documents.server(await services.places.endpoint(name)),) if name else ()


@router.put("/endpoint/{endpoint_id}")
async def describe(
    endpoint_id: CollectionId,
    document: Annotated[Description, Body()],
    caller: Transferrer,
    services: Services,
    request: Request,
) -> Document:
    """Change the description of a collection, or the name of a guest collection, and refuse any other change."""
    given = document.model_fields_set - {"DATA_TYPE"}
    if document.model_extra or not given:
        fields = ", ".join(document.model_extra or ())[:200] or "neither"
        raise Invalid(f"only display_name and description can be changed: {fields} was given", "give only these")
    description = (document.description or "") if "description" in given else None
    await services.collections.describe(caller, endpoint_id, document.display_name or None, description)
    return documents.result("result", "Updated", "Endpoint updated successfully", request.url.path)


@router.get("/endpoint/{endpoint_id}/server_list")
async def server_list(endpoint_id: CollectionId, caller: Reader, services: Services) -> Document:
    """List the servers of a collection: its GridFTP server, if it has one."""
    servers = await _servers(await services.collections.one(caller, endpoint_id), services)
    return documents.some("endpoint_server_list", servers, endpoint=str(endpoint_id))


@router.post("/endpoint/{endpoint_id}/autoactivate")
async def autoactivate(endpoint_id: CollectionId, caller: Reader, services: Services, request: Request) -> Document:
    """Do nothing, as collections are always active. Old clients call this."""
    await services.collections.one(caller, endpoint_id)
    return documents.result(
        "activation_result", "AutoActivated.CachedCredential", "Nothing is needed", request.url.path
    ) | {"expires_in": -1, "expire_time": None}


@router.get("/endpoint/{endpoint_id}/my_effective_pause_rule_list")
async def effective_pause_rules(endpoint_id: CollectionId, caller: Reader, services: Services) -> Document:
    """List the pause rules of a collection that apply to the caller."""
    collection = (await services.collections.one(caller, endpoint_id)).collection
    rules = await services.pause_rules.effective([endpoint_id], caller.subject)
    return documents.some("pause_rule_list", await pause_rules(services, rules, {collection.id: collection}, False))


@router.get("/endpoint/{endpoint_id}/role_list")
async def role_list(endpoint_id: CollectionId, caller: Reader, services: Services) -> Document:
    """List the administrators of a collection: its owner."""
    seen = await services.collections.one(caller, endpoint_id)
    owner = {"DATA_TYPE": "role", "id": None, "principal_type": "identity", "role": "administrator"}
    people = await _owners(services, [seen])
    return documents.some("role_list", [owner | {"principal": people.id(seen.collection.owner)}])
