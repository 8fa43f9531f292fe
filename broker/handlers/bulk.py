"""Import and export of whole catalogues."""

from collections.abc import AsyncIterator
from typing import Annotated, Any

from fastapi import Query, Request, Response
from fastapi.responses import StreamingResponse

from broker.dependencies.context import Services
from broker.dependencies.route_policies import Curator, Reader
from broker.handlers.routers import own_router
from broker.models.names import Beginning, Named
from broker.response_formats import NDJSON
from broker.services.catalogue.formats import Format

__all__ = ["PATHS", "router"]

router = own_router("bulk")
PATHS = ("/import",)
"""Paths whose request bodies may have any length."""
STREAM: dict[int | str, dict[str, Any]] = {
    200: {"description": "one JSON object per line; the last object has end: true", "content": {NDJSON: {}}}
}


@router.post(
    "/import",
    response_class=Response,
    responses=STREAM,
    openapi_extra={"requestBody": {"content": {"application/octet-stream": {"schema": {"type": "string"}}}}},
)
async def read(
    request: Request,
    caller: Curator,
    services: Services,
    format: Annotated[Format, Query()] = "ndjson",
    endpoint: Annotated[Named | None, Query(description="endpoint of the files, for a list of checksums")] = None,
    scope: Annotated[Named | None, Query(description="default scope of names")] = None,
) -> Response:
    """Import datasets and replicas from a stream: store valid entries, and report each invalid entry on a line.

    The last line of the response is `{"end": true, "read": n, "kept": n, "changed": n, "refused": n}`. Entries are
    stored in groups of a thousand; an import can be repeated safely.
    """
    report = services.bulk.read(caller.subject, format, request.stream(), endpoint, scope or "", caller.role)
    first = await anext(report)  # waits until all is stored; an error before this line can still get its own status

    async def lines() -> AsyncIterator[bytes]:
        yield first
        async for line in report:
            yield line

    return StreamingResponse(lines(), media_type=NDJSON)


@router.get("/export", response_class=Response, responses=STREAM)
async def write(
    caller: Reader,
    services: Services,
    prefix: Annotated[Beginning | None, Query(description="beginning of names; SCOPE:BEGINNING within a scope")] = None,
) -> Response:
    """Export all datasets with their replicas, one per line, in the format of `import`; the last line counts them."""
    if not caller.may("admin"):
        services.large.admit(caller.subject, "exports")
    return StreamingResponse(services.bulk.write(prefix or "", caller), media_type=NDJSON)
