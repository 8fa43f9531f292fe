"""Forms of the broker's own pages, protected against cross-site request forgery, and the actions of their buttons."""

import hmac
import re
from collections.abc import Mapping

from fastapi import Request
from fastapi.responses import RedirectResponse, Response

from broker.dependencies.context import Services
from broker.dependencies.sessions import BrowsingCurator, Form
from broker.errors import Forbidden
from broker.handlers.oauth.forms import form
from broker.handlers.routers import page_router
from broker.models.callers import Caller

__all__ = ["START", "acts", "meant", "place", "router"]

START = "/reports"
PLACE = re.compile(r"/reports(/[A-Za-z0-9._-]{1,100}){0,2}(\?[!#-;=?-\[\]_a-z~]{0,700})?")
"""Paths of the broker's report pages: the only targets of redirects."""
router = page_router("/reports")


def place(path: str) -> str:
    """Return a path if it is a report page, otherwise the path of the first page."""
    return path if PLACE.fullmatch(path) else START


def acts(caller: Caller, secret: str, page: str) -> Mapping[str, str]:
    """Return the hidden fields of a page's buttons; empty if the caller may not use the buttons.

    :param secret: token of the session against forged forms
    """
    return {"form": secret, "back": page} if caller.may("curator") else {}


async def meant(request: Request, secret: str) -> Mapping[str, str]:
    """Return the fields of a form, if it comes from one of the broker's own pages.

    :param secret: token of the session against forged forms
    :raises Forbidden: when the form does not have this token
    """
    fields = await form(request)
    if not hmac.compare_digest(fields.get("form", "").encode(errors="replace"), secret.encode()):
        raise Forbidden("the form has expired or belongs to another page", "open the page again")
    return fields


@router.post("/probes")
async def probe(request: Request, caller: BrowsingCurator, form: Form, services: Services) -> Response:
    """Request the measurement of a link, and redirect to the page with the button."""
    fields = await meant(request, form)
    await services.probes.want(caller, fields.get("source", ""), fields.get("sink", ""))
    return RedirectResponse(place(fields.get("back", "")), 303, {"Cache-Control": "no-store"})
