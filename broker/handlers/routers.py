"""Routers of the broker's interfaces, and what their routes share: the parameters of pages by key, each of which states
where the next page begins, and the settings of all streams of server-sent events.

Each router is complete once handlers have added routes to it, and is included nowhere. FastAPI prepares a route again
for each router that includes another, which took most of a broker's start.
"""

from typing import Annotated, Any

from fastapi import APIRouter, Query
from pydantic import BaseModel

from broker.dependencies.access import Guarded
from broker.models.base import Problem

__all__ = ["OWN", "RETRY", "UNHINDERED", "Before", "Limit", "errors_of", "own_router", "page_router"]

OWN = "/broker/v1"
Limit = Annotated[int, Query(ge=1, le=1000, description="largest number of items")]
Before = Annotated[int | None, Query(ge=0, lt=2**63, description="value from the previous page")]
RETRY = 1000
"""Milliseconds after which a browser that lost a stream asks for it again."""
UNHINDERED = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
"""Headers of streams. The last one is for nginx, which would otherwise buffer a stream until a page of it is full."""


def errors_of(model: type[BaseModel], *statuses: int) -> dict[int | str, dict[str, Any]]:
    """Document errors that share one form: in full for the first status, by reference for the others.

    FastAPI would build a validator for each form in full, of each route: thousands at each start.
    """
    first, *others = statuses
    schema = {"$ref": f"#/components/schemas/{model.__name__}"}
    content = {"application/json": {"schema": schema}}
    return {first: {"model": model}, **{status: {"content": content} for status in others}}


OWN_ERRORS = errors_of(Problem, 400, 401, 403, 404, 409, 413, 422, 429, 503)
"""The errors that any route of the broker's own API may return."""


def own_router(tag: str, prefix: str = "", route_class: type[Guarded] = Guarded) -> APIRouter:
    """Create a router of the broker's own API, for a resource below `prefix`."""
    return APIRouter(prefix=f"{OWN}{prefix}", tags=[tag], responses=OWN_ERRORS, route_class=route_class)


def page_router(prefix: str = "", route_class: type[Guarded] = Guarded) -> APIRouter:
    """Create a router of pages, which are not in the OpenAPI document."""
    return APIRouter(prefix=prefix, include_in_schema=False, route_class=route_class)
