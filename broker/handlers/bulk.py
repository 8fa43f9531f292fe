"""Import and export of whole catalogues."""

from collections.abc import AsyncIterator
from typing import Annotated, Any

from fastapi import Query, Request, Response
from fastapi.responses import StreamingResponse

from broker.dependencies.access import Curator, Reader
from broker.dependencies.context import Services
from broker.handlers.routers import own_router
from broker.models.names import Beginning, Named
from broker.response_formats import NDJSON
from broker.services.catalogue.formats import Format

__all__ = ["PATHS", "router"]

router = own_router("bulk")
PATHS = ("/import",)
"""Paths whose request bodies may have any length."""
STREAM: dict[int | str, dict[str, Any]] = {
    200: {"description": "one JSON object per line; the last one has end: true", "content": {NDJSON: {}}}
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
    endpoint: Annotated[Named | None, Query(description="endpoint of the files in a list of checksums")] = None,
    scope: Annotated[Named | None, Query(description="default scope of names")] = None,
) -> Response:
    """Import datasets and replicas from a stream: valid entries are stored, invalid ones are reported line by line.

    The last line of the response is `{"end": true, "read": n, "kept": n, "changed": n, "refused": n}`. Entries are
    stored in groups of a thousand; sending them again changes nothing.
    """
    report = services.bulk.read(caller.subject, format, request.stream(), endpoint, scope or "", caller.role)
    first = await anext(report)  # by now all is stored, or an error gets its own response

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
    """Export all datasets with their replicas, one per line, as `import` takes them; the last line has their number."""
    if not caller.may("admin"):
        services.large.admit(caller.subject, "exports")
    return StreamingResponse(services.bulk.write(prefix or "", caller), media_type=NDJSON)
