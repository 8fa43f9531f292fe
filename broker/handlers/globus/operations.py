"""Immediate operations on files and directories of collections, for Globus clients: list, stat, mkdir and rename."""

import asyncio
from collections.abc import Sequence
from contextlib import aclosing
from functools import partial
from typing import Annotated, Any
from uuid import UUID

from fastapi import Body, Query, Request, Response, status

from broker.dependencies.context import Services
from broker.dependencies.route_policies import Reader, Transferrer
from broker.errors import TooLarge
from broker.factory import Factory
from broker.handlers.globus import documents
from broker.handlers.globus.errors import refusals
from broker.handlers.globus.filters import fitting, ordered
from broker.handlers.globus.routers import CollectionId, Document, Order, QueryText, globus_router, quick
from broker.handlers.globus.submitted_documents import ClientDocument, Text
from broker.models.callers import Caller
from broker.services.auth.permissions import Reach
from broker.services.collection_paths import normal
from broker.services.collections.collections import CollectionUse

__all__ = ["router"]

router = globus_router("/operation/endpoint/{endpoint_id}")
FIELDS = ("name", "type", "size", "last_modified", "permissions", "user", "group", "link_target")
MOST = 100_000
LARGEST = 1_000_000
"""Most entries of a directory that are sorted."""
SPARE = 50_000
"""Number of documents, in addition to the requested ones, from which they are sorted and the last ones dropped."""


class NewFolder(ClientDocument):
    """A directory to be created."""

    path: Text


class Renaming(ClientDocument):
    """A file or directory to be renamed."""

    old_path: Text
    new_path: Text


@router.get("/ls", response_class=Response, responses={200: {"content": {"application/json": {}}}})
async def ls(
    endpoint_id: CollectionId,
    caller: Reader,
    services: Services,
    path: QueryText = "/",
    show_hidden: bool = True,
    limit: Annotated[int, Query(ge=0, le=MOST)] = MOST,
    offset: Annotated[int, Query(ge=0, le=2 * MOST)] = 0,
    orderby: Order = "name",
    filter: Annotated[Sequence[str], Query(max_length=20)] = (),
) -> Response:
    """List a directory."""
    inside = normal(path)
    reach = await _allowed(services, caller, "ls", CollectionUse(endpoint_id, inside))
    fits, order = fitting(filter, FIELDS), ordered(orderby, FIELDS) or [("name", False)]
    page, total = list[Document](), 0
    with refusals("DirListing"):
        tree = await services.trees.of(reach.collection, reach)
        async with aclosing(tree.list(inside)) as batches:
            async for batch in batches:
                entries = batch if show_hidden else [entry for entry in batch if not entry.name.startswith(".")]
                found = [document for entry in entries if fits(document := documents.file(entry))]
                page, total = page + found, total + len(found)
                if total > LARGEST:
                    raise TooLarge(f"{inside} has more than {LARGEST} entries", "use a filter")
                if len(page) > offset + limit + SPARE:
                    page = await asyncio.to_thread(_first, page, order, offset + limit)
                await asyncio.sleep(0)
    page = await asyncio.to_thread(_first, page, order, offset + limit)
    return quick(documents.listing(reach.collection, inside, page[offset:], total))


def _first(found: list[Document], order: Sequence[tuple[str, bool]], count: int) -> list[Document]:
    """Return the first documents in an order: fields, each with True for descending."""
    for field, down in reversed(order):
        found.sort(key=partial(_rank, field), reverse=down)
    return found[:count]


def _rank(field: str, document: dict[str, Any]) -> tuple[bool, Any]:
    """Return the sort key of a document; missing values come first."""
    return document[field] is not None, document[field]


@router.get("/stat")
async def stat(
    endpoint_id: CollectionId, caller: Reader, services: Services, path: Annotated[str, Query(max_length=5000)]
) -> Document:
    """Return the file or directory at a path."""
    where = normal(path)
    reach = await _allowed(services, caller, "ls", CollectionUse(endpoint_id, where))
    with refusals("Stat"):
        tree = await services.trees.of(reach.collection, reach)
        return documents.file(await tree.stat(where))


@router.post("/mkdir", status_code=status.HTTP_202_ACCEPTED)
async def mkdir(
    endpoint_id: CollectionId,
    document: Annotated[NewFolder, Body()],
    caller: Transferrer,
    services: Services,
    request: Request,
) -> Document:
    """Create a directory inside an existing one."""
    path = normal(document.path)
    reach = await _allowed(services, caller, "mkdir", CollectionUse(endpoint_id, path, writes=True))
    with refusals("Mkdir"):
        tree = await services.trees.of(reach.collection, reach)
        await tree.make(path.rstrip("/") or "/")
    message = "The directory was created successfully"
    return documents.result("mkdir_result", "DirectoryCreated", message, request.url.path)


@router.post("/rename")
async def rename(
    endpoint_id: CollectionId,
    document: Annotated[Renaming, Body()],
    caller: Transferrer,
    services: Services,
    request: Request,
) -> Document:
    """Move a file or directory to another path in its collection."""
    old, new = normal(document.old_path).rstrip("/") or "/", normal(document.new_path).rstrip("/") or "/"
    uses = (CollectionUse(endpoint_id, path, writes=True) for path in (old, new))
    reach = await _allowed(services, caller, "rename", *uses)
    with refusals("Rename"):
        tree = await services.trees.of(reach.collection, reach)
        await tree.rename(old, new)
    message = "File or directory renamed successfully"
    return documents.result("result", "FileRenamed", message, request.url.path)


async def _allowed(services: Factory, caller: Caller, operation: str, *uses: CollectionUse) -> Reach:
    """Return the caller's rights in the collection.

    :raises NotGranted: when an access rule is missing
    :raises Paused: when a pause rule applies
    """
    number: UUID = uses[0].collection
    reach = (await services.collections.allow(caller, uses))[number]
    await services.pause_rules.check(caller, reach.collection, operation)
    return reach
