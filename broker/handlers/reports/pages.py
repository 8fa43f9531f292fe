"""Reports for people: a page each."""

from collections.abc import Callable
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import RedirectResponse, Response

from broker.dependencies.context import Services
from broker.dependencies.sessions import Browsing, BrowsingAdmin, Form
from broker.errors import NotFound
from broker.handlers.reports.routes import Tidy, asking, made
from broker.models.access import Caller
from broker.pages import shown
from broker.reports.catalogue import REPORTS, Kind

__all__ = ["router"]

router = APIRouter(prefix="/reports", route_class=Tidy)


def _menu(caller: Caller) -> list[Kind]:
    """Those that this caller may see; some need a word of what about."""
    return [kind for kind in REPORTS.values() if kind.listed and (caller.may("admin") or not kind.admin)]


@router.get("")
async def first(caller: Browsing) -> Response:
    """The first report, from which one goes on."""
    if not (menu := _menu(caller)):
        raise NotFound("there is nothing to see yet")
    return RedirectResponse(f"/reports/{menu[0].name}", 303, {"Cache-Control": "no-store"})


def _page(kind: Kind) -> Callable[..., Any]:
    async def show(request: Request, caller: Any, form: Form, services: Services, wanted: Any) -> Response:
        report = await made(kind, services, caller, wanted)
        query = f"?{request.url.query}" if request.url.query else ""
        return shown("report", report=report, menu=_menu(caller), caller=caller, form=form, query=query, drawn={})

    return asking(kind, show, BrowsingAdmin if kind.admin else Browsing)


for each in REPORTS.values():
    router.add_api_route(f"/{each.name}", _page(each))
