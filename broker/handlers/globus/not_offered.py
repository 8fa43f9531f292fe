"""Answers at the paths of Globus services that this broker does not offer, for users whose clients ask it for them."""

from fastapi import APIRouter

from broker.dependencies.route_policies import Guarded, Open, Transferrer
from broker.handlers.globus.errors import NotOffered
from broker.handlers.globus.routers import CollectionId, globus_router

__all__ = ["router", "transfer"]

router = APIRouter(include_in_schema=False, route_class=Guarded)
transfer = globus_router()
METHODS = ["GET", "POST", "PUT", "PATCH", "DELETE"]


@router.api_route("/v2/groups", methods=METHODS)
@router.api_route("/v2/groups/{rest:path}", methods=METHODS)
@router.api_route("/v2/preferences", methods=METHODS)
@router.api_route("/v2/subscription_info/{rest:path}", methods=METHODS)
async def groups(caller: Open) -> None:
    """Refuse requests to Globus Groups."""
    raise NotOffered("Globus Groups")


@router.api_route("/flows", methods=METHODS)
@router.api_route("/flows/{rest:path}", methods=METHODS)
@router.api_route("/runs", methods=METHODS)
@router.api_route("/runs/{rest:path}", methods=METHODS)
@router.api_route("/registered_apis", methods=METHODS)
@router.api_route("/registered_apis/{rest:path}", methods=METHODS)
@router.api_route("/web_inputs", methods=METHODS)
@router.api_route("/web_inputs/{rest:path}", methods=METHODS)
async def flows(caller: Open) -> None:
    """Refuse requests to Globus Flows."""
    raise NotOffered("Globus Flows")


@router.api_route("/v1/{rest:path}", methods=METHODS)
async def search(caller: Open) -> None:
    """Refuse requests to Globus Search."""
    raise NotOffered("Globus Search")


@router.api_route("/v2/tunnels", methods=METHODS)
@router.api_route("/v2/tunnels/{rest:path}", methods=METHODS)
@router.api_route("/v2/stream_access_points", methods=METHODS)
@router.api_route("/v2/stream_access_points/{rest:path}", methods=METHODS)
async def tunnels(caller: Open) -> None:
    """Refuse requests for tunnels between streams."""
    raise NotOffered("A tunnel")


@transfer.post("/endpoint")
async def personal_endpoint(caller: Transferrer) -> None:
    """Refuse to register a personal endpoint: admins create collections."""
    raise NotOffered("Globus Connect Personal")


@transfer.put("/endpoint/{endpoint_id}/subscription")
@transfer.put("/endpoint/{endpoint_id}/subscription_admin_verified")
async def subscription(endpoint_id: CollectionId, caller: Transferrer) -> None:
    """Refuse to change a subscription, which exists only between Globus and its customers."""
    raise NotOffered("A Globus subscription")


@transfer.post("/endpoint/{endpoint_id}/role")
@transfer.get("/endpoint/{endpoint_id}/role/{role_id}")
@transfer.delete("/endpoint/{endpoint_id}/role/{role_id}")
async def role(endpoint_id: CollectionId, caller: Transferrer) -> None:
    """Refuse to give a role: a collection has one owner."""
    raise NotOffered("A role in a collection")
