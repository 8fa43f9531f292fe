"""Routes of reports: one of each kind for each report, with what may be asked of it."""

from collections.abc import Callable, Coroutine
from typing import Annotated, Any
from urllib.parse import parse_qsl, urlencode

from fastapi import Query, Request
from fastapi.responses import JSONResponse, RedirectResponse, Response

from broker.dependencies.access import Guarded
from broker.dependencies.context import Services
from broker.errors import NotFound
from broker.factory import Factory
from broker.models.access import Caller
from broker.reports.archive import Scope
from broker.reports.catalogue import Kind
from broker.reports.data import csv_of, document, tables_of
from broker.reports.document import Report

__all__ = ["KEPT", "Tidy", "asking", "made", "missing", "table", "whole"]

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
            return RedirectResponse(f"{request.url.path}?{kept}".rstrip("?"), 303)

        return tidy


def asking(kind: Kind, handler: Callable[..., Any], caller: object) -> Callable[..., Any]:
    """The handler, whose parameters `caller` and `wanted` are those of this report.

    Each report has another type of query, which no annotation in a source file can say.
    """
    handler.__annotations__ |= {"caller": caller, "wanted": Annotated[kind.wanted, Query()]}
    return handler


async def made(kind: Kind, services: Factory, caller: Caller, wanted: object) -> Report:
    """The report, with what this caller may see."""
    return await kind.make(services.archive, Scope.of(caller), wanted)


def missing(report: Report, part: str) -> NotFound:
    """What to raise when the report has no such part."""
    return NotFound(f"the report {report.title} has no {part[:100]}", f"see /broker/v1/reports/{report.name}")


def whole(kind: Kind, caller: object) -> Callable[..., Any]:
    """A handler that gives all of a report as JSON, to this kind of caller."""

    async def give(caller: Any, services: Services, wanted: Any) -> Response:
        return JSONResponse(document(await made(kind, services, caller, wanted)), headers=KEPT)

    return asking(kind, give, caller)


def table(kind: Kind, caller: object) -> Callable[..., Any]:
    """A handler that gives one of a report's tables as CSV, to this kind of caller."""

    async def give(part: str, caller: Any, services: Services, wanted: Any) -> Response:
        report = await made(kind, services, caller, wanted)
        if (found := tables_of(report).get(part)) is None:
            raise missing(report, part)
        return Response(csv_of(found), media_type="text/csv", headers=KEPT)

    return asking(kind, give, caller)
