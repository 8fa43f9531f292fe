"""Reports as pages in the browser, one page per report."""

from collections.abc import Callable
from typing import Any

from fastapi import Request
from fastapi.responses import RedirectResponse, Response

from broker.dependencies.context import Services
from broker.dependencies.sessions import Browsing, Form, browsing
from broker.handlers.reports.fields import fields
from broker.handlers.reports.forms import acts
from broker.handlers.reports.routes import Tidy, asking, made
from broker.handlers.routers import page_router
from broker.models.access import Caller
from broker.pages import shown
from broker.reports.catalogue import REPORTS, ReportKind
from broker.reports.drawing import DRAWING, drawn

__all__ = ["router"]

router = page_router("/reports", Tidy)


def _menu(caller: Caller) -> list[ReportKind]:
    """Return the reports for the menu: those that the caller may see and that need no arguments."""
    return [kind for kind in REPORTS.values() if kind.listed and (caller.may("admin") or not kind.admin)]


@router.get("")
async def first(caller: Browsing) -> Response:
    """Redirect to the first report."""
    return RedirectResponse(f"/reports/{_menu(caller)[0].name}", 303, {"Cache-Control": "no-store"})


def _page(kind: ReportKind) -> Callable[..., Any]:
    async def show(request: Request, caller: Any, form: Form, services: Services, wanted: Any) -> Response:
        report = await made(kind, services, caller, wanted)
        query = f"?{request.url.query}" if request.url.query else ""
        return shown(
            "report",
            name=kind.name,
            report=report,
            drawn=await services.drawing.run(DRAWING, caller.subject, drawn, report.figures),
            fields=fields(wanted),
            query=query,
            menu=_menu(caller),
            caller=caller,
            form=form,
            acts=acts(caller, form, f"{request.url.path}{query}"),
            live=kind.live is not None,
        )

    return asking(kind, show, browsing(kind.admin))


for each in REPORTS.values():
    router.add_api_route(f"/{each.name}", _page(each))
