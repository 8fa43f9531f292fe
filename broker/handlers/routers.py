"""Routers of the broker's interfaces, with their shared paging parameters, error forms and headers of event streams.

The application takes the routes from these routers, and includes no router in another: FastAPI would prepare each
route again, which took most of a broker's start-up time.
"""

from typing import Annotated, Any

from fastapi import APIRouter, Query
from pydantic import BaseModel

from broker.dependencies.route_policies import Guarded
from broker.models.base import Problem

__all__ = ["OWN", "RETRY", "UNHINDERED", "Before", "Limit", "errors_of", "own_router", "page_router"]

OWN = "/broker/v1"
Limit = Annotated[int, Query(ge=1, le=1000, description="largest number of items")]
Before = Annotated[int | None, Query(ge=0, lt=2**63, description="value from the previous page")]
RETRY = 1000
"""Milliseconds after which a browser reconnects to a lost stream."""
UNHINDERED = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
"""Headers of streams; `X-Accel-Buffering` keeps nginx from buffering."""


def errors_of(model: type[BaseModel], *statuses: int) -> dict[int | str, dict[str, Any]]:
    """Return the OpenAPI responses for errors of one model: the first status has the model, the others a reference.

    For each model of each route, FastAPI would build a validator: thousands at each start.
    """
    first, *others = statuses
    schema = {"$ref": f"#/components/schemas/{model.__name__}"}
    content = {"application/json": {"schema": schema}}
    return {first: {"model": model}, **{status: {"content": content} for status in others}}


OWN_ERRORS = errors_of(Problem, 400, 401, 403, 404, 409, 413, 422, 429, 503)
"""The errors that any route of the broker's own API may return."""


def own_router(tag: str, prefix: str = "", route_class: type[Guarded] = Guarded) -> APIRouter:
    """Return a router of the broker's own API, for a resource below `prefix`."""
    return APIRouter(prefix=f"{OWN}{prefix}", tags=[tag], responses=OWN_ERRORS, route_class=route_class)


def page_router(prefix: str = "", route_class: type[Guarded] = Guarded) -> APIRouter:
    """Return a router of pages, which the OpenAPI document leaves out."""
    return APIRouter(prefix=prefix, include_in_schema=False, route_class=route_class)
