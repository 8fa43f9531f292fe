"""Login and logout of browsers for reports; the report pages are a client of the broker's own OAuth2 service.

During a login, the browser keeps one secret in a cookie. From the secret and a random number in `state`, the broker
derives the PKCE verifier, and an HMAC which proves that `state` and its target page belong to this browser.
"""

import base64
import hashlib
import hmac
import secrets
from urllib.parse import urlencode

from fastapi import Request
from fastapi.responses import RedirectResponse, Response

from broker.dependencies.context import Home, Services
from broker.dependencies.route_policies import Open
from broker.dependencies.sessions import LOGIN, Browsing, Form, cookie, keep
from broker.errors import Unauthenticated
from broker.handlers.oauth.forms import parameters_of
from broker.handlers.oauth.requests import PAGES_AT
from broker.handlers.reports.forms import START, meant, place
from broker.handlers.routers import page_router
from broker.models.oauth import PAGES
from broker.pages import page

__all__ = ["router"]

router = page_router()
PATIENCE = 900.0
"""Longest duration of a login in seconds."""
AWAY = "pages"


@router.get(LOGIN)
async def begin(request: Request, caller: Open, home: Home, to: str = START) -> Response:
    """Begin a login; `to` is the page to open after it."""
    secret = request.cookies.get(cookie(AWAY, home)) or secrets.token_urlsafe(32)
    number = secrets.token_urlsafe(16)
    target = place(to)
    parameters = {
        "client_id": PAGES,
        "redirect_uri": f"{home}{PAGES_AT}",
        "response_type": "code",
        "scope": "openid",
        "state": f"{number}.{_made(secret, 'state', number, target)}.{target}",
        "code_challenge": _encoded(hashlib.sha256(_made(secret, "verifier", number).encode()).digest()),
        "code_challenge_method": "S256",
    }
    return keep(_sent(f"/v2/oauth2/authorize?{urlencode(parameters)}"), AWAY, home, secret, PATIENCE)


@router.get(PAGES_AT)
async def done(request: Request, caller: Open, services: Services, home: Home) -> Response:
    """Complete a login, and redirect to the page that the user requested."""
    parameters, secret = parameters_of(request.url.query), request.cookies.get(cookie(AWAY, home), "")
    number, proof, target = [*parameters.get("state", "").split(".", 2), "", "", ""][:3]
    right = _made(secret, "state", number, target)
    ours = hmac.compare_digest(proof.encode(), right.encode()) and parameters.get("iss") == home
    if not (secret and ours):
        raise Unauthenticated("this login was not started in this browser", f"start again at {START}")
    if "code" not in parameters:
        return page("out", 403, message="Login failed.")
    session, lasts = await services.sessions.begin(
        parameters["code"], f"{home}{PAGES_AT}", _made(secret, "verifier", number)
    )
    return keep(_sent(place(target)), "session", home, session, lasts)


@router.post("/reports/logout")
async def log_out(request: Request, caller: Browsing, form: Form, services: Services, home: Home) -> Response:
    """End the session and the login of this browser, and revoke the tokens that programs got through the login."""
    await meant(request, form)
    await services.sessions.end(request.cookies.get(cookie("session", home), ""))
    await services.logins.end(request.cookies.get(cookie("login", home), ""))
    answer = page("out", message="You have logged out.")
    for name in ("session", "login"):
        keep(answer, name, home, "", 0)
    return answer


def _made(secret: str, *words: str) -> str:
    return _encoded(hmac.new(secret.encode(), "\n".join(words).encode(), hashlib.sha256).digest())


def _encoded(digest: bytes) -> str:
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()


def _sent(url: str) -> Response:
    return RedirectResponse(url, 303, {"Cache-Control": "no-store", "Referrer-Policy": "no-referrer"})
