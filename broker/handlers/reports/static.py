"""The style and the script of pages: the same for all, kept by browsers until there are others."""

from fastapi import APIRouter
from fastapi.responses import Response

from broker.dependencies.access import Guarded, Open
from broker.errors import NotFound
from broker.pages import STATIC

__all__ = ["router"]

router = APIRouter(prefix="/reports/static", route_class=Guarded)
FOREVER = {"Cache-Control": "public, max-age=31536000, immutable", "X-Content-Type-Options": "nosniff"}


@router.get("/{name}")
async def static(name: str, caller: Open) -> Response:
    """One file, whose name tells what is in it."""
    if name not in STATIC:
        raise NotFound(f"there is no {name[:100]}", "open /reports once more")
    return Response(STATIC[name].content, media_type=STATIC[name].kind, headers=FOREVER)
