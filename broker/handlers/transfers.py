"""The history of transfers."""

from collections.abc import AsyncIterator
from typing import Annotated, Any, Literal

from fastapi import Body, Depends, Query, Request, Response
from fastapi.responses import StreamingResponse
from pydantic import Discriminator, Field, Tag

from broker.dependencies.context import Services
from broker.dependencies.route_policies import Reader, Transferrer
from broker.factory import Factory
from broker.handlers.routers import Before, Limit, own_router
from broker.history_export import CSV, PARQUET, csv_of, parquet_of
from broker.models.base import Moment, Wire, one_or_list
from broker.models.callers import Caller
from broker.models.history import Direction, Ingested, LogTaken, Observed, TransferRecord
from broker.models.names import SourceName, Whereto
from broker.models.subjects import LONGEST

__all__ = ["PATHS", "router"]

router = own_router("history")
TABLE: dict[int | str, dict[str, Any]] = {200: {"description": "a table", "content": {CSV: {}, PARQUET: {}}}}
MOST = 20_000
Some = Annotated[
    Annotated[Observed, Tag("one")] | Annotated[list[Observed], Field(max_length=MOST, fail_fast=True), Tag("list")],
    Discriminator(one_or_list),
]
PATHS = ("/transfers/import",)
"""Paths with streamed bodies, whose length the service limits."""
BYTES = {"requestBody": {"content": {"application/octet-stream": {"schema": {"type": "string"}}}}}


class TransferPage(Wire):
    """A page of transfers; `next` is the `before` of the following page."""

    transfers: list[TransferRecord]
    next: int | None


@router.post("/transfers")
async def report(
    observed: Annotated[Some, Body()],
    caller: Transferrer,
    services: Services,
) -> Ingested:
    """Report one or many transfers. They are stored before the response; repeats have no effect."""
    return await services.transfers.take(
        caller.subject, observed if isinstance(observed, list) else [observed], caller.role
    )


@router.post("/transfers/import", openapi_extra=BYTES)
async def report_log(request: Request, caller: Transferrer, services: Services) -> LogTaken:
    """Report the transfers in another program's log, in any format of `coget history import`."""
    return await services.logs.take(caller.subject, request.stream(), caller.role)


def conditions(
    source: Annotated[SourceName | None, Query()] = None,
    sink: Annotated[Whereto | None, Query()] = None,
    direction: Annotated[Direction | None, Query()] = None,
    outcome: Annotated[Literal["ok", "slow", "failed", "corrupt"] | None, Query()] = None,
    subject: Annotated[str | None, Query(max_length=LONGEST, pattern=r"^[A-Za-z0-9_.@:/+%~-]*$")] = None,
    set_aside: Annotated[
        bool | None,
        Query(description="known to be wrong, and so not used by forecasts"),
    ] = None,
    since: Annotated[Moment | None, Query(description="ended at or after")] = None,
    until: Annotated[Moment | None, Query(description="ended before")] = None,
) -> dict[str, Any]:
    """Return the conditions on transfers, by name; a condition of None fits every transfer."""
    return dict(locals())


Filter = Annotated[dict[str, Any], Depends(conditions)]


@router.get("/transfers/export", response_class=Response, responses=TABLE)
async def export(
    caller: Reader,
    services: Services,
    conditions: Filter,
    format: Annotated[Literal["csv", "parquet"], Query()] = "csv",
) -> Response:
    """Export the transfers that meet the conditions as a table, newest first. Parquet needs pyarrow on the broker."""
    if not caller.may("admin"):
        services.large.admit(caller.subject, "exports")
    pages = _in_turns(await services.transfers.pages(conditions, caller), caller, services)
    if format == "csv":
        return StreamingResponse(csv_of(pages), media_type=CSV)
    return StreamingResponse(await parquet_of(pages, services.working, caller.subject), media_type=PARQUET)


async def _in_turns(
    pages: AsyncIterator[list[TransferRecord]], caller: Caller, services: Factory
) -> AsyncIterator[list[TransferRecord]]:
    """Yield the pages, each read in a turn of its own, so that other callers' large requests run in between."""
    while True:
        async with services.large.turn(caller.subject, "exports", admitted=True):
            page = await anext(pages, None)
        if page is None:
            return
        yield page


@router.get("/transfers")
async def transfers(
    caller: Reader, services: Services, conditions: Filter, before: Before = None, limit: Limit = 100
) -> TransferPage:
    """List the reported transfers that meet the conditions, newest first."""
    page = await services.transfers.listed(conditions, before, limit, caller)
    return TransferPage.model_construct(transfers=page, next=page[-1].id if len(page) == limit else None)
