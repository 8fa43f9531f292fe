"""Replicas: registration, reports of bad ones, and search."""

from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime
from typing import Annotated, Any

from fastapi import Body, Query, Request, Response, status
from fastapi.responses import StreamingResponse
from pydantic import Discriminator, Field, Tag

from broker.dependencies.context import Services
from broker.dependencies.route_policies import Curator, Reader, Transferrer
from broker.factory import Factory
from broker.handlers.routers import Limit, own_router
from broker.models.base import Wire, one_or_list
from broker.models.callers import Caller
from broker.models.catalogue import BadReplica, CatalogueReplica, ConfirmedReplica, ReplicaState, UnconfirmedReplica
from broker.models.forecasts import Resolved, ResolveRequest
from broker.models.names import Did, Named, SinkName
from broker.response_formats import METALINK, NDJSON, line, metalinked

__all__ = ["router"]

router = own_router("replicas")
AT_ONCE = 1000
Some = Annotated[
    Annotated[ConfirmedReplica, Tag("one")] | Annotated[list[ConfirmedReplica], Field(max_length=AT_ONCE), Tag("list")],
    Discriminator(one_or_list),
]
FOUND: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "one dataset per line, then a line with end: true; or a Metalink 4 document",
        "content": {NDJSON: {}, METALINK: {}},
    }
}


class ReplicaPage(Wire):
    """A page of replicas; `next` and `next_endpoint` are `after` and `after_endpoint` of the following page."""

    replicas: list[CatalogueReplica]
    next: str | None
    next_endpoint: str | None


class Unconfirmed(Wire):
    """A page of replicas; `next` and `next_endpoint` are the `after` and `after_endpoint` of the following page."""

    replicas: list[UnconfirmedReplica]
    next: str | None
    next_endpoint: str | None


@router.get("/replicas")
async def wanting(
    caller: Reader,
    services: Services,
    state: Annotated[
        ReplicaState | None,
        Query(description="any state but AVAILABLE; default: BAD and SUSPICIOUS"),
    ] = None,
    after: Annotated[Did | None, Query(description="dataset of the last item of the previous page")] = None,
    after_endpoint: Annotated[Named | None, Query(description="endpoint of that item")] = None,
    limit: Limit = 100,
) -> ReplicaPage:
    """List replicas in a state that needs attention, by dataset and endpoint."""
    page = await services.catalogue.wanting(
        [state] if state else ["BAD", "SUSPICIOUS"], after or "", after_endpoint or "", limit, caller
    )
    replicas, last = page
    if last is None:
        return ReplicaPage.model_construct(replicas=replicas, next=None, next_endpoint=None)
    return ReplicaPage.model_construct(replicas=replicas, next=last.dataset, next_endpoint=last.endpoint)


@router.put("/replicas")
async def put_replica(replica: CatalogueReplica, caller: Curator, services: Services) -> CatalogueReplica:
    """Create or change a replica."""
    return await services.catalogue.put_replica(caller.subject, replica, caller.role)


@router.delete("/replicas", status_code=status.HTTP_204_NO_CONTENT)
async def remove_replica(
    dataset: Annotated[Did, Query()], endpoint: Annotated[Named, Query()], caller: Curator, services: Services
) -> None:
    """Delete a replica's record. No file is deleted."""
    await services.catalogue.remove_replica(caller.subject, dataset, endpoint)


@router.get("/replicas/unconfirmed")
async def unconfirmed(
    caller: Reader,
    services: Services,
    after: Annotated[Did | None, Query(description="dataset of the last item of the previous page")] = None,
    after_endpoint: Annotated[Named | None, Query(description="endpoint of that item")] = None,
    limit: Limit = 100,
) -> Unconfirmed:
    """List the unconfirmed replicas inside the caller's collections; for admins, inside all collections.

    Users can read them only with access to the collection. Once the collection's owner or an admin has confirmed them,
    all users of the catalogue can read them.
    """
    page = await services.confirming.unconfirmed(caller, after or "", after_endpoint or "", limit)
    last = page[-1] if len(page) == limit else None
    return Unconfirmed.model_construct(replicas=page, next=last and last.dataset, next_endpoint=last and last.endpoint)


@router.post("/replicas/confirm", status_code=status.HTTP_204_NO_CONTENT)
async def confirm(
    named: Annotated[Some, Body()],
    caller: Transferrer,
    services: Services,
) -> None:
    """Confirm up to 1000 replicas inside collections of the caller (for admins: any), so that all users can read them.

    If one cannot be confirmed, none is. A confirmation ends when the replica or its endpoint moves.
    """
    await services.confirming.confirm(caller, named if isinstance(named, list) else [named])


@router.post("/replicas/bad")
async def bad(bad: BadReplica, caller: Transferrer, services: Services) -> CatalogueReplica:
    """Report that a replica is bad: it is not offered until a curator sets it to AVAILABLE.

    The last available replica only becomes SUSPICIOUS, and is still offered. The report of a single subject does not
    change a state that a curator has set.
    """
    return await services.bad_replica_reports.report(caller.subject, bad, caller.role)


@router.get("/replicas/resolve", response_class=Response, responses=FOUND)
async def resolve_few(
    name: Annotated[list[Did], Query(max_length=100)],
    request: Request,
    caller: Reader,
    services: Services,
    sink: Annotated[SinkName | None, Query(description="a site; default: the caller's site")] = None,
) -> Response:
    """Find the replicas of some datasets by GET, for clients such as `aria2c` that follow a Metalink."""
    return await _found(name, sink, request, caller, services)


@router.post("/replicas/resolve", response_class=Response, responses=FOUND)
async def resolve(query: ResolveRequest, request: Request, caller: Reader, services: Services) -> Response:
    """Find the replicas of up to 10,000 datasets; the best of each dataset come first, with forecasts and reasons.

    The response is NDJSON: one dataset per line, then `{"end": true, "count": n}`; without that line it is incomplete.
    With `Accept: application/metalink4+xml`, it is a Metalink 4 document of the datasets that have replicas.
    """
    return await _found(query.names, query.sink, request, caller, services)


async def _found(
    names: Sequence[str], sink: str | None, request: Request, caller: Caller, services: Factory
) -> Response:
    parts = services.replicas.resolve(names, caller.site if sink is None else sink, caller)
    if METALINK in request.headers.get("Accept", ""):
        found = [each async for part in parts for each in part]
        return Response(metalinked(found, datetime.now(UTC)), media_type=METALINK)
    first: Sequence[Resolved] = ()
    async for part in parts:  # errors are reported before the response begins
        first = part
        break
    return StreamingResponse(_lines(first, parts), media_type=NDJSON)


async def _lines(first: Sequence[Resolved], parts: AsyncIterator[Sequence[Resolved]]) -> AsyncIterator[bytes]:
    count = len(first)
    yield b"".join(line(each) for each in first)
    async for part in parts:
        count += len(part)
        yield b"".join(line(each) for each in part)
    yield line({"end": True, "count": count})
