"""The Globus Transfer API, as far as its command line and its SDK use it. Its documents go no deeper than here."""

from typing import Any

from fastapi import APIRouter

from broker.handlers.globus import access, bookmarks, endpoints, manager, operations, pausing, submit, tasks
from broker.handlers.globus.errors import PREFIX, Error, error

__all__ = ["error", "router"]

ERRORS: dict[int | str, dict[str, Any]] = {
    status: {"model": Error} for status in (400, 401, 403, 404, 405, 409, 413, 429, 502, 503)
}
router = APIRouter(prefix=PREFIX, tags=["globus"], responses=ERRORS)
for module in (submit, tasks, operations, endpoints, access, bookmarks, manager, pausing):
    router.include_router(module.router)
