"""Whole catalogues in and out."""

from collections.abc import AsyncIterator
from typing import Annotated, Any

from fastapi import Query, Request, Response
from fastapi.responses import StreamingResponse

from broker.dependencies.access import Curator, Reader
from broker.dependencies.context import Services
from broker.handlers.routers import own_router
from broker.models.names import Beginning, Named
from broker.services.formats import Format
from broker.wire import NDJSON

__all__ = ["PATHS", "router"]

router = own_router("bulk")
PATHS = ("/import",)
"""Whose bodies may have any length."""
STREAM: dict[int | str, dict[str, Any]] = {
    200: {"description": "lines of JSON; the last says the end", "content": {NDJSON: {}}}
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
    endpoint: Annotated[Named | None, Query(description="that has the files of a list of checksums")] = None,
    scope: Annotated[Named | None, Query(description="of names that have none")] = None,
) -> Response:
    """Datasets and replicas from a stream: what makes sense is kept, what does not is reported line by line.

    The last line of the answer is `{"end": true, "read": n, "kept": n, "changed": n, "refused": n}`. A thousand
    entries are kept together; sent again, they change nothing.
    """
    report = services.bulk.read(caller.subject, format, request.stream(), endpoint, scope or "", caller.role)
    first = await anext(report)  # all is kept by now, or an error is said as one

    async def lines() -> AsyncIterator[bytes]:
        yield first
        async for line in report:
            yield line

    return StreamingResponse(lines(), media_type=NDJSON)


@router.get("/export", response_class=Response, responses=STREAM)
async def write(
    caller: Reader,
    services: Services,
    prefix: Annotated[Beginning | None, Query(description="how names begin; SCOPE:BEGINNING within a scope")] = None,
) -> Response:
    """All datasets with their replicas, one a line, as `import` takes them; the last line says how many."""
    if not caller.may("admin"):
        services.large.admit(caller.subject, "exports")
    return StreamingResponse(services.bulk.write(prefix or "", caller), media_type=NDJSON)
