"""Routes of reports: one of each kind for each report, with what may be asked of it."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Annotated, Any
from urllib.parse import parse_qsl, urlencode

from fastapi import Query, Request
from fastapi.responses import JSONResponse, RedirectResponse, Response
from pydantic import BaseModel

from broker.dependencies.access import Guarded
from broker.dependencies.context import Services
from broker.errors import Invalid, NotFound
from broker.factory import Factory
from broker.models.access import Caller
from broker.reports.archive import Scope
from broker.reports.catalogue import Kind
from broker.reports.data import csv_of, document
from broker.reports.document import Report, Table

__all__ = ["KEPT", "Tidy", "asking", "csv", "made", "part_of", "whole"]

KEPT = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "Cross-Origin-Resource-Policy": "same-origin",
}
"""Of what only some may see, and browsers must not take for anything else."""


class Tidy(Guarded):
    """A route that takes what a form says nothing of as not said: browsers send empty fields, too."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def tidy(request: Request) -> Response:
            said = parse_qsl(request.url.query, keep_blank_values=True)
            if all(value for _, value in said):
                return await handle(request)
            kept = urlencode([(name, value) for name, value in said if value])
            return RedirectResponse(f"{request.scope['path']}?{kept}".rstrip("?"), 303)

        return tidy


def asking(kind: Kind, handler: Callable[..., Any], caller: object) -> Callable[..., Any]:
    """The handler, whose parameters `caller` and `wanted` are those of this report.

    Each report has another type of query, which no annotation in a source file can say.
    """
    handler.__annotations__ |= {"caller": caller, "wanted": Annotated[kind.wanted, Query()]}
    return handler


async def made(kind: Kind, services: Factory, caller: Caller, wanted: BaseModel) -> Report:
    """The report, with what this caller may see.

    :raises Invalid: when it is asked for what PostgreSQL takes for no text
    :raises TooManyRequests: when their reports have taken too long
    """
    if strange := [name for name, value in wanted if isinstance(value, str) and "\0" in value]:
        raise Invalid(f"{strange[0]} has a character that means nothing", "leave it out")
    async with services.large.turn(caller.subject, "reports", caller.may("admin")):
        return await kind.make(services.archive, Scope.of(caller), wanted)


def whole(kind: Kind, caller: object) -> Callable[..., Any]:
    """A handler that gives all of a report as JSON, to this kind of caller."""

    async def give(caller: Any, services: Services, wanted: Any) -> Response:
        return JSONResponse(document(await made(kind, services, caller, wanted)), headers=KEPT)

    return asking(kind, give, caller)


def part_of(
    kind: Kind,
    caller: object,
    find: Callable[[Report, str], Any],
    give: Callable[[Any, Caller, Factory], Awaitable[Response]],
) -> Callable[..., Any]:
    """A handler that gives one part of a report, to this kind of caller.

    :param find: the part of a name, or None
    :param give: what it is given as
    """

    async def handle(part: str, caller: Any, services: Services, wanted: Any) -> Response:
        report = await made(kind, services, caller, wanted)
        if (found := find(report, part)) is None:
            raise NotFound(f"the report {report.title} has no {part[:100]}", f"see /reports/{report.name}.json")
        return await give(found, caller, services)

    return asking(kind, handle, caller)


async def csv(table: Table, caller: Caller, services: Factory) -> Response:
    """A table as a file."""
    return Response(await asyncio.to_thread(csv_of, table), media_type="text/csv", headers=KEPT)
