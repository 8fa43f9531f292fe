"""The stylesheet and the script of pages; their names change with their content, so that browsers may cache them."""

from fastapi.responses import Response

from broker.dependencies.route_policies import Open
from broker.errors import NotFound
from broker.handlers.routers import page_router
from broker.pages import STATIC

__all__ = ["router"]

router = page_router("/reports/static")
FOREVER = {"Cache-Control": "public, max-age=31536000, immutable", "X-Content-Type-Options": "nosniff"}


@router.get("/{name}")
async def static(name: str, caller: Open) -> Response:
    """Return one file."""
    if name not in STATIC:
        raise NotFound(f"there is no report file {name[:100]}", "open /reports again")
    return Response(STATIC[name].content, media_type=STATIC[name].kind, headers=FOREVER)
