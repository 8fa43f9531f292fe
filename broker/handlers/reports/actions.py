"""Actions of the buttons in reports."""

from fastapi import Request
from fastapi.responses import RedirectResponse, Response

from broker.dependencies.context import Services
from broker.dependencies.sessions import BrowsingCurator, Form
from broker.handlers.reports.forms import meant, place
from broker.handlers.routers import page_router

__all__ = ["router"]

router = page_router("/reports")


@router.post("/probes")
async def probe(request: Request, caller: BrowsingCurator, form: Form, services: Services) -> Response:
    """Request the measurement of a link, and return to the page of the button."""
    said = await meant(request, form)
    await services.probes.want(caller, said.get("source", ""), said.get("sink", ""))
    return RedirectResponse(place(said.get("back", "")), 303, {"Cache-Control": "no-store"})
