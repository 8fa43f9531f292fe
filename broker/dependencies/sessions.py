"""The user of a browser that has logged in, and the token that proves that a form is the broker's own.

The broker's cookies can be read by no script, and sent with a form by no other site.
"""

import hashlib
import hmac
from typing import Annotated
from urllib.parse import quote

from fastapi import Depends, Request
from starlette.responses import Response

from broker.dependencies.access import RoutePolicy
from broker.dependencies.context import home, services
from broker.errors import LoggedOut
from broker.models.access import Caller, Role
from broker.models.oauth import Bearer

__all__ = [
    "LOGIN",
    "Browsing",
    "BrowsingAdmin",
    "BrowsingCurator",
    "Form",
    "RequiresBrowserLogin",
    "browsing",
    "cookie",
    "keep",
]

LOGIN = "/reports/login"


def cookie(name: str, home: str) -> str:
    """Return the full name of a cookie; with TLS it has a prefix that makes browsers refuse one set by another host."""
    return f"__Host-coget-{name}" if home.startswith("https:") else f"coget-{name}"


def keep(answer: Response, name: str, home: str, value: str, seconds: float) -> Response:
    """Set a cookie with this lifetime in an answer, and return the answer; 0 deletes the cookie."""
    answer.set_cookie(
        cookie(name, home),
        value,
        max_age=int(seconds),
        path="/",
        secure=home.startswith("https:"),
        httponly=True,
        samesite="lax",
    )
    return answer


class RequiresBrowserLogin(RoutePolicy):
    """A policy that requires a login with this browser and this role, even if the broker lets everybody read."""

    def __init__(self, role: Role) -> None:
        super().__init__(role)

    async def bearer(self, request: Request) -> Bearer:
        """Return the user of the browser's session. :raises LoggedOut: when there is no valid session"""
        secret = request.cookies.get(cookie("session", home(request)))
        caller = await services(request).sessions.current(secret) if secret else None
        if caller is None:
            here = f"{request.scope['path']}?{request.url.query}".rstrip("?") if request.method == "GET" else "/reports"
            public = services(request).settings.public_url  # if it is configured, cookies belong to its host
            raise LoggedOut(f"{public}{LOGIN}?to={quote(here, safe='')}")
        return Bearer(caller)


def form(request: Request) -> str:
    """Return the token against forged forms of this session: an HMAC, which does not reveal the session's secret."""
    secret = request.cookies.get(cookie("session", home(request)), "")
    return hmac.new(secret.encode(), b"form", hashlib.sha256).hexdigest()


Browsing = Annotated[Caller, Depends(RequiresBrowserLogin("reader"))]
BrowsingCurator = Annotated[Caller, Depends(RequiresBrowserLogin("curator"))]
BrowsingAdmin = Annotated[Caller, Depends(RequiresBrowserLogin("admin"))]
Form = Annotated[str, Depends(form)]


def browsing(admin: bool) -> object:
    """Return the dependency of pages for admins only, or of pages for all users."""
    return BrowsingAdmin if admin else Browsing
