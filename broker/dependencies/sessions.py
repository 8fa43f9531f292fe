"""Browser sessions: the logged-in user, and the token against cross-site request forgery.

No script can read the broker's cookies, and no other site's form can send them.
"""

import hashlib
import hmac
from typing import Annotated
from urllib.parse import quote

from fastapi import Depends, Request
from starlette.responses import Response

from broker.dependencies.context import home, services
from broker.dependencies.route_policies import RoutePolicy
from broker.errors import LoggedOut
from broker.models.callers import Caller, Role
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
    """Return the full name of a cookie; over TLS with the prefix `__Host-`, so that no other host can set it."""
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
    """A policy that requires a browser login with a role, even if the broker allows anonymous reading."""

    def __init__(self, role: Role) -> None:
        super().__init__(role)

    async def bearer(self, request: Request) -> Bearer:
        """Return the user of the browser's session. :raises LoggedOut: when there is no valid session"""
        secret = request.cookies.get(cookie("session", home(request)))
        caller = await services(request).sessions.current(secret) if secret else None
        if caller is None:
            here = f"{request.scope['path']}?{request.url.query}".rstrip("?") if request.method == "GET" else "/reports"
            public = services(request).settings.public_url  # if configured, the cookies are valid for its host only
            raise LoggedOut(f"{public}{LOGIN}?to={quote(here, safe='')}")
        return Bearer(caller)


def form(request: Request) -> str:
    """Return the session's token against forged forms: an HMAC, so that no page contains the session's secret."""
    secret = request.cookies.get(cookie("session", home(request)), "")
    return hmac.new(secret.encode(), b"form", hashlib.sha256).hexdigest()


Browsing = Annotated[Caller, Depends(RequiresBrowserLogin("reader"))]
BrowsingCurator = Annotated[Caller, Depends(RequiresBrowserLogin("curator"))]
BrowsingAdmin = Annotated[Caller, Depends(RequiresBrowserLogin("admin"))]
Form = Annotated[str, Depends(form)]


def browsing(admin: bool) -> object:
    """Return the dependency for pages: for admins only, or for all logged-in users."""
    return BrowsingAdmin if admin else Browsing
