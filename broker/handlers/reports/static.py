"""The style and the script of pages: the same for all users, cached by browsers until they change."""

from fastapi.responses import Response

from broker.dependencies.access import Open
from broker.errors import NotFound
from broker.handlers.routers import page_router
from broker.pages import STATIC

__all__ = ["router"]

router = page_router("/reports/static")
FOREVER = {"Cache-Control": "public, max-age=31536000, immutable", "X-Content-Type-Options": "nosniff"}


@router.get("/{name}")
async def static(name: str, caller: Open) -> Response:
    """Return one file, whose name identifies its content."""
    if name not in STATIC:
        raise NotFound(f"there is no {name[:100]}", "open /reports again")
    return Response(STATIC[name].content, media_type=STATIC[name].kind, headers=FOREVER)
