"""Routers of the Globus Transfer API, with the parameter types and responses that its routes share."""

from typing import Annotated, Any
from uuid import UUID

import orjson
from fastapi import APIRouter, Path, Query, Response

from broker.dependencies.route_policies import Guarded
from broker.handlers.globus.errors import PREFIX, ErrorDocument
from broker.handlers.routers import errors_of
from broker.models.base import STORABLE

__all__ = [
    "ERRORS",
    "CollectionId",
    "Document",
    "Fields",
    "Limit",
    "Marker",
    "Offset",
    "Order",
    "QueryText",
    "TaskId",
    "globus_router",
    "quick",
]

ERRORS = errors_of(ErrorDocument, 400, 401, 403, 404, 405, 409, 413, 429, 502, 503)
QueryText = Annotated[str, Query(max_length=5000, pattern=STORABLE)]
Fields = Annotated[str, Query(max_length=2000, description="document types, separated by commas")]
Order = Annotated[str, Query(max_length=500, description="FIELD, or FIELD DESC, separated by commas")]
Limit = Annotated[int, Query(ge=0, le=1000)]
Offset = Annotated[int, Query(ge=0, lt=2**31)]
Marker = Annotated[int, Query(ge=0, lt=2**63, description="value from the previous page")]
CollectionId = Annotated[UUID, Path()]
TaskId = Annotated[UUID, Path()]
Document = dict[str, Any]


def globus_router(prefix: str = "") -> APIRouter:
    """Return a router without routes for a resource of the Globus API."""
    return APIRouter(prefix=f"{PREFIX}{prefix}", tags=["globus"], responses=ERRORS, route_class=Guarded)


def quick(document: Document) -> Response:
    """Return a response without validating its document, which may have 100,000 entries."""
    return Response(orjson.dumps(document), media_type="application/json")
