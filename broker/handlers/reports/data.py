"""Reports as data for programs: whole reports as JSON, each table as CSV."""

from typing import Any

from fastapi.responses import Response

from broker.dependencies.route_policies import Admin, Reader
from broker.handlers.reports.routes import csv, part_of, whole
from broker.handlers.routers import own_router
from broker.models.reports import ReportDocument
from broker.reports.data import table_of
from broker.reports.registry import REPORTS

__all__ = ["router"]

router = own_router("reports", "/reports")
CSV: dict[int | str, dict[str, Any]] = {
    200: {"description": "a header, then one line per row", "content": {"text/csv": {}}}
}

for kind in REPORTS.values():
    caller = Admin if kind.admin else Reader
    router.add_api_route(
        f"/{kind.name}",
        whole(kind, caller),
        response_model=ReportDocument,
        name=f"report {kind.name}",
        summary=kind.title,
        description=f"The whole report {kind.title}.",
    )
    router.add_api_route(
        f"/{kind.name}/{{part}}.csv",
        part_of(kind, caller, table_of, csv),
        response_class=Response,
        responses=CSV,
        name=f"table of report {kind.name}",
        summary=f"A table of {kind.title}",
        description=f"A table of the report {kind.title}, or the data of one of its figures.",
    )
