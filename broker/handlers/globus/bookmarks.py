"""Bookmarks, for Globus clients."""

from typing import Annotated
from uuid import UUID

from fastapi import Body, Request, status
from pydantic import AfterValidator, StringConstraints

from broker.dependencies.context import Services
from broker.dependencies.route_policies import Reader, Transferrer
from broker.handlers.globus import documents
from broker.handlers.globus.routers import Document, globus_router
from broker.handlers.globus.submitted_documents import ClientDocument, Text
from broker.services.collection_paths import normal

__all__ = ["router"]

router = globus_router()


def _printable(name: str) -> str:
    if not name.isprintable():
        raise ValueError("has a character that cannot be printed")
    return name


Name = Annotated[
    str, StringConstraints(strip_whitespace=True, min_length=1, max_length=128), AfterValidator(_printable)
]


class NewBookmark(ClientDocument):
    """A name for a path of a collection."""

    name: Name
    endpoint_id: UUID
    path: Text


class BookmarkChange(ClientDocument):
    """The changeable parts of a bookmark."""

    name: Name | None = None
    pinned: bool | None = None


@router.get("/bookmark_list")
async def bookmark_list(caller: Reader, services: Services) -> Document:
    """List the caller's bookmarks, by name."""
    found = await services.bookmarks.all(caller.subject)
    return documents.some("bookmark_list", map(documents.bookmark, found))


@router.post("/bookmark", status_code=status.HTTP_201_CREATED)
async def create(document: Annotated[NewBookmark, Body()], caller: Transferrer, services: Services) -> Document:
    """Create a bookmark."""
    await services.collections.one(caller, document.endpoint_id)
    path = normal(document.path).rstrip("/") + "/"
    made = await services.bookmarks.add(caller.subject, document.name, document.endpoint_id, path)
    return documents.bookmark(made)


@router.get("/bookmark/{bookmark_id}")
async def bookmark(bookmark_id: UUID, caller: Reader, services: Services) -> Document:
    """Return one bookmark."""
    return documents.bookmark(await services.bookmarks.one(caller.subject, bookmark_id))


@router.put("/bookmark/{bookmark_id}")
async def change(
    bookmark_id: UUID, document: Annotated[BookmarkChange, Body()], caller: Transferrer, services: Services
) -> Document:
    """Rename, pin or unpin a bookmark."""
    values = document.model_dump(exclude_none=True)
    return documents.bookmark(await services.bookmarks.change(caller.subject, bookmark_id, values))


@router.delete("/bookmark/{bookmark_id}")
async def delete(bookmark_id: UUID, caller: Transferrer, services: Services, request: Request) -> Document:
    """Delete a bookmark."""
    await services.bookmarks.remove(caller.subject, bookmark_id)
    return documents.result("result", "Deleted", f"Bookmark '{bookmark_id}' deleted successfully", request.url.path)
