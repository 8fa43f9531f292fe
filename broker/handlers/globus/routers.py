"""Routers of the Globus Transfer API."""

from fastapi import APIRouter

from broker.dependencies.access import Guarded
from broker.handlers.globus.errors import PREFIX, ErrorDocument
from broker.handlers.routers import errors_of

__all__ = ["globus_router"]

ERRORS = errors_of(ErrorDocument, 400, 401, 403, 404, 405, 409, 413, 429, 502, 503)


def globus_router(prefix: str = "") -> APIRouter:
    """Make a router for a resource below `prefix`, complete when a handler has added its routes."""
    return APIRouter(prefix=f"{PREFIX}{prefix}", tags=["globus"], responses=ERRORS, route_class=Guarded)
