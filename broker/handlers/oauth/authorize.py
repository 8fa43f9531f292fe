"""Login pages: the form, the redirect to an identity provider, and the code to copy.

The browser keeps a login in a cookie that no script can read and no other site's form can send. A form is accepted
only if its hidden secret equals the browser's form cookie.
"""

import hmac
import re
import secrets
from urllib.parse import urlsplit

from fastapi import Request
from fastapi.responses import RedirectResponse, Response

from broker.dependencies.context import Home, Services
from broker.dependencies.route_policies import Open
from broker.dependencies.sessions import cookie, keep
from broker.errors import Forbidden, NoRole, NotFound, OAuthRefused, Unauthenticated
from broker.factory import Factory
from broker.handlers.oauth.forms import address, form, parameters_of
from broker.handlers.oauth.requests import SHOWN_AT, AuthorizationRequest, origin
from broker.handlers.routers import page_router
from broker.models.oauth import PAGES, UserLogin
from broker.pages import page
from broker.services.auth.logins import LASTS
from broker.services.auth.provider import PATIENCE, Provider

__all__ = ["router"]

router = page_router()
PATH = "/v2/oauth2/authorize"
AWAY = "/v2/web/login"
BACK = "/v2/web/callback"
CODE = re.compile(r"[A-Za-z0-9_-]{1,200}")


@router.get(PATH)
async def ask(request: Request, caller: Open, services: Services, home: Home) -> Response:
    """Show the form with which users log in, and allow or decline the program's request."""
    authorization = await _authorization_request(request, services, home)
    try:
        authorization.code()
    except OAuthRefused as refusal:
        return _refused(authorization, home, refusal)
    login = await _login(request, services, home)
    return _form(request, services, home, authorization, login)


@router.post(PATH)
async def decide(request: Request, caller: Open, services: Services, home: Home) -> Response:
    """Process the user's decision."""
    authorization, fields = await _authorization_request(request, services, home), await form(request)
    expected = request.cookies.get(cookie("form", home), "")
    if not expected or not hmac.compare_digest(expected.encode(), fields.get("form", "").encode()):
        raise Forbidden("the form has expired or belongs to another page", "go back to the program, and start again")
    try:
        code = authorization.code()
    except OAuthRefused as refusal:
        return _refused(authorization, home, refusal)
    secret = request.cookies.get(cookie("login", home), "")
    if fields.get("decision") == "leave":
        await services.logins.end(secret)
        return _form(request, services, home, authorization, None)
    if fields.get("decision") != "allow":
        return _refused(authorization, home, OAuthRefused("access_denied", "you declined the login"))
    try:
        if token := fields.get("token"):
            secret = await services.logins.by_token(token.strip(), address(request))
        answer = _sent(authorization.back(home, code=await services.grants.code(secret, code)))
    except Unauthenticated as error:
        return _form(request, services, home, authorization, None, error.message)
    return keep(answer, "login", home, secret, LASTS)


@router.get(AWAY)
async def away(request: Request, caller: Open, services: Services, home: Home) -> Response:
    """Redirect the user to the identity provider; the cookie keeps the query of the original request."""
    await _authorization_request(request, services, home)
    url, sealed = await _provider(services).away(f"{home}{BACK}", request.url.query)
    return keep(_sent(url), "away", home, sealed, PATIENCE)


@router.get(BACK)
async def back(request: Request, caller: Open, services: Services, home: Home) -> Response:
    """Log in the user that the identity provider named, and redirect to the original request."""
    parameters = parameters_of(request.url.query)
    if "code" not in parameters:
        raise Unauthenticated("the identity provider refused the login", "go back to the program, and start again")
    sealed = request.cookies.get(cookie("away", home), "")
    try:
        named = await _provider(services).home(sealed, parameters.get("state", ""), parameters["code"], f"{home}{BACK}")
    except NoRole as error:
        await services.logins.end_all(error.subject)
        raise
    secret = await services.logins.by_provider(named.caller, named.name, named.email)
    answer = keep(_sent(f"{PATH}?{named.query}"), "login", home, secret, LASTS)
    return keep(answer, "away", home, "", 0)


@router.get(SHOWN_AT)
async def shown(request: Request, caller: Open) -> Response:
    """Show the code for users to copy."""
    parameters = parameters_of(request.url.query)
    code = parameters.get("code", "")
    if CODE.fullmatch(code):
        return page("code", code=code, fault="")
    return page("code", 400, code="", fault=parameters.get("error_description", "there is no code to show")[:200])


async def _authorization_request(request: Request, services: Factory, home: str) -> AuthorizationRequest:
    parameters = parameters_of(request.url.query)
    client = await services.clients.known(parameters.get("client_id", ""))
    return AuthorizationRequest.of(client, parameters, home, {home, str(request.base_url).rstrip("/")})


async def _login(request: Request, services: Factory, home: str) -> UserLogin | None:
    secret = request.cookies.get(cookie("login", home))
    return await services.logins.current(secret) if secret else None


def _provider(services: Factory) -> Provider:
    if services.provider is None:
        raise NotFound("this broker has no identity provider", "log in with a token")
    return services.provider


def _form(
    request: Request,
    services: Factory,
    home: str,
    authorization: AuthorizationRequest,
    login: UserLogin | None,
    fault: str = "",
) -> Response:
    secret = request.cookies.get(cookie("form", home)) or secrets.token_urlsafe(32)
    configured = services.settings.provider
    answer = page(
        "login",
        403 if fault else 200,
        "" if authorization.client.id == PAGES else origin(authorization.redirect_uri) or "",
        fault=fault,
        domain=services.settings.domain,
        client=authorization.client.name,
        unknown=authorization.client.made_by is None,
        target=_target(authorization),
        action=f"{PATH}?{request.url.query}",
        form=secret,
        username=login and services.identities.usernames.of(login.caller.subject),
        provider=configured and f"{AWAY}?{request.url.query}",
        provider_name=configured and urlsplit(configured.issuer).hostname,
        scopes=authorization.code().scopes,
    )
    return keep(answer, "form", home, secret, LASTS)


def _target(authorization: AuthorizationRequest) -> str:
    if authorization.client.id == PAGES:
        return "this broker's own pages"
    here = origin(authorization.redirect_uri)
    return f"a program on your machine ({here})" if here else "this page, as a code to copy"


def _refused(authorization: AuthorizationRequest, home: str, refusal: OAuthRefused) -> Response:
    return _sent(authorization.back(home, error=refusal.code, error_description=refusal.message))


def _sent(url: str) -> Response:
    headers = {"Cache-Control": "no-store", "Referrer-Policy": "no-referrer"}
    return RedirectResponse(url, 303, headers)
