"""Factories of report handlers, which give each handler the query parameters of its report."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Annotated, Any
from urllib.parse import parse_qsl, urlencode

from fastapi import Query, Request
from fastapi.responses import JSONResponse, RedirectResponse, Response
from pydantic import BaseModel

from broker.dependencies.context import Services
from broker.dependencies.route_policies import Guarded
from broker.errors import Invalid, NotFound
from broker.factory import Factory
from broker.models.callers import Caller
from broker.reports.archive import Scope
from broker.reports.data import csv_of, document
from broker.reports.document import Report, Table
from broker.reports.registry import ReportKind

__all__ = ["PRIVATE", "Tidy", "asking", "csv", "made", "part_of", "whole"]

PRIVATE = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "Cross-Origin-Resource-Policy": "same-origin",
}
"""Headers for content that browsers must not cache, embed in other sites, or interpret as another type."""


class Tidy(Guarded):
    """A route that redirects to a URL without empty parameters, since browsers also send the empty fields of a form."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def tidy(request: Request) -> Response:
            parameters = parse_qsl(request.url.query, keep_blank_values=True)
            if all(value for _, value in parameters):
                return await handle(request)
            query = urlencode([(name, value) for name, value in parameters if value])
            return RedirectResponse(f"{request.scope['path']}?{query}".rstrip("?"), 303)

        return tidy


def asking(kind: ReportKind, handler: Callable[..., Any], caller: object) -> Callable[..., Any]:
    """Annotate the handler's parameters `caller` and `parameters` with the types for a report, and return the handler.

    The types differ between reports, so that they cannot be written in the source.
    """
    handler.__annotations__ |= {"caller": caller, "parameters": Annotated[kind.query, Query()]}
    return handler


async def made(kind: ReportKind, services: Factory, caller: Caller, parameters: BaseModel) -> Report:
    """Return a report with the data that the caller may see.

    :raises Invalid: when a parameter contains NUL, which PostgreSQL does not accept in text
    :raises TooManyRequests: when the caller's reports have taken too long
    """
    if strange := [name for name, value in parameters if isinstance(value, str) and "\0" in value]:
        raise Invalid(f"{strange[0]} has an invalid character", "leave it out")
    async with services.large.turn(caller.subject, "reports", caller.may("admin")):
        return await kind.make(services.archive, Scope.of(caller), parameters)


def whole(kind: ReportKind, caller: object) -> Callable[..., Any]:
    """Return a handler that sends the whole report as JSON.

    :param caller: dependency that authenticates the caller
    """

    async def give(caller: Any, services: Services, parameters: Any) -> Response:
        return JSONResponse(document(await made(kind, services, caller, parameters)), headers=PRIVATE)

    return asking(kind, give, caller)


def part_of(
    kind: ReportKind,
    caller: object,
    find: Callable[[Report, str], Any],
    give: Callable[[Any, Caller, Factory], Awaitable[Response]],
) -> Callable[..., Any]:
    """Return a handler that sends one part of a report.

    :param caller: dependency that authenticates the caller
    :param find: function that returns the part with a name, or None
    :param give: function that turns the part into a response
    """

    async def handle(part: str, caller: Any, services: Services, parameters: Any) -> Response:
        report = await made(kind, services, caller, parameters)
        if (found := find(report, part)) is None:
            raise NotFound(
                f"the report {report.title} has no {part[:100]}", f"choose a part listed in /reports/{report.name}.json"
            )
        return await give(found, caller, services)

    return asking(kind, handle, caller)


async def csv(table: Table, caller: Caller, services: Factory) -> Response:
    """Return a table as a CSV file."""
    return Response(await asyncio.to_thread(csv_of, table), media_type="text/csv", headers=PRIVATE)
