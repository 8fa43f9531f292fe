"""Guest collections for Globus clients, which call them shared endpoints."""

from typing import Annotated
from uuid import UUID

from fastapi import Body, Request, status

from broker.dependencies.context import Services
from broker.dependencies.route_policies import Reader, Transferrer
from broker.factory import Factory
from broker.handlers.globus import documents
from broker.handlers.globus.endpoints import described
from broker.handlers.globus.routers import CollectionId, Document, globus_router
from broker.handlers.globus.submitted_documents import ClientDocument, Text
from broker.models.callers import Caller
from broker.models.collections import NewTitle
from broker.models.names import Remark
from broker.services.collections.collections import VisibleCollection

__all__ = ["router"]

router = globus_router()


class SharedEndpoint(ClientDocument):
    """A directory to share. Its name and description are those of the new collection."""

    host_endpoint: UUID
    host_path: Text
    display_name: NewTitle
    description: Remark | None = None


@router.post("/shared_endpoint", status_code=status.HTTP_201_CREATED)
async def share(
    document: Annotated[SharedEndpoint, Body()], caller: Transferrer, services: Services, request: Request
) -> Document:
    """Share a directory of a collection as a guest collection."""
    about = (document.display_name, document.description or "")
    made = await services.collections.share(caller, document.host_endpoint, document.host_path, *about)
    message = "Shared endpoint created successfully"
    return documents.result("endpoint_create_result", "Created", message, request.url.path, id=str(made.id))


@router.delete("/endpoint/{endpoint_id}")
async def unshare(endpoint_id: CollectionId, caller: Transferrer, services: Services, request: Request) -> Document:
    """Delete a guest collection; no file is deleted."""
    await services.collections.unshare(caller, endpoint_id)
    return documents.result("result", "Deleted", "Endpoint deleted successfully", request.url.path)


@router.get("/endpoint/{endpoint_id}/my_shared_endpoint_list")
async def my_shared_endpoints(endpoint_id: CollectionId, caller: Reader, services: Services) -> Document:
    """List the caller's guest collections of a collection; admins see all."""
    mine = await _mine(services, caller, endpoint_id)
    return documents.some("endpoint_list", await described(services, mine, caller))


@router.get("/endpoint/{endpoint_id}/shared_endpoint_list")
async def shared_endpoints(endpoint_id: CollectionId, caller: Reader, services: Services) -> Document:
    """List the ids of the same guest collections in the form of a newer request."""
    mine = await _mine(services, caller, endpoint_id)
    return {"shared_endpoints": [{"id": str(each.collection.id)} for each in mine], "next_token": None}


async def _mine(services: Factory, caller: Caller, host: UUID) -> list[VisibleCollection]:
    """Return the guest collections of a host that the caller manages. :raises NoCollection:"""
    await services.collections.one(caller, host)
    seen = await services.collections.visible(caller)
    return [each for each in seen if (of := each.collection.share) and of.host == host and each.managed_by(caller)]
