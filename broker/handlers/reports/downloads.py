"""Downloads offered by pages: figures, tables, and whole reports."""

from fastapi.responses import JSONResponse, Response

from broker.dependencies.sessions import browsing
from broker.factory import Factory
from broker.handlers.reports.routes import PRIVATE, Tidy, csv, part_of, whole
from broker.handlers.routers import page_router
from broker.models.callers import Caller
from broker.reports import data
from broker.reports.document import Figure, Table
from broker.reports.drawing import DRAWING, png, svg
from broker.reports.registry import REPORTS

__all__ = ["router"]

router = page_router("/reports", Tidy)


async def _svg(figure: Figure, caller: Caller, services: Factory) -> Response:
    """Return a figure as SVG, with a policy that stops browsers from running or fetching anything in it."""
    alone = {**PRIVATE, "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; sandbox"}
    drawing = await services.drawing.run(DRAWING, caller.subject, svg, figure, True)
    return Response(drawing, media_type="image/svg+xml", headers=alone)


async def _png(figure: Figure, caller: Caller, services: Factory) -> Response:
    picture = await services.drawing.run(DRAWING, caller.subject, png, figure)
    return Response(picture, media_type="image/png", headers=PRIVATE)


async def _json(part: Figure | Table, caller: Caller, services: Factory) -> Response:
    return JSONResponse(data.part(part), headers=PRIVATE)


for kind in REPORTS.values():
    caller = browsing(kind.admin)
    router.add_api_route(f"/{kind.name}.json", whole(kind, caller))
    router.add_api_route(f"/{kind.name}/{{part}}.csv", part_of(kind, caller, data.table_of, csv))
    router.add_api_route(f"/{kind.name}/{{part}}.json", part_of(kind, caller, data.part_of, _json))
    router.add_api_route(f"/{kind.name}/{{part}}.svg", part_of(kind, caller, data.figure_of, _svg))
    router.add_api_route(f"/{kind.name}/{{part}}.png", part_of(kind, caller, data.figure_of, _png))
