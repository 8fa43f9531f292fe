"""Endpoints that issue, check and revoke tokens (RFC 6749, 7009, 7662)."""

import time
from collections.abc import Mapping
from typing import Any

from fastapi import Request
from fastapi.responses import JSONResponse

from broker.dependencies.context import Home, Services
from broker.dependencies.route_policies import Open
from broker.errors import OAuthRefused
from broker.factory import Factory
from broker.handlers.oauth.documents import about, identity_set
from broker.handlers.oauth.forms import authenticated, form
from broker.handlers.routers import page_router
from broker.models.oauth import ALL, Client, Grant
from broker.services.auth.grants import IssuedTokens

__all__ = ["router"]

router = page_router()
LASTS = 3600
"""Validity of an ID token in seconds; programs read it at once, to learn the user's identity."""


@router.post("/v2/oauth2/token")
async def token(request: Request, caller: Open, services: Services, home: Home) -> JSONResponse:
    """Issue tokens in exchange for a code, a refresh token, or the client's own credentials."""
    fields = await form(request)
    kind = fields.get("grant_type")
    if kind is None:
        raise OAuthRefused("invalid_request", "grant_type is missing")
    if kind == "refresh_token" and (client := await _service(request, fields, services)):
        given = await services.grants.own(client, fields.get("scope") or ALL)
        return _unstored(await _answer(given, client, services, home))
    client = await authenticated(request, fields, services)
    if kind == "authorization_code":
        words = (fields.get(name, "") for name in ("code", "redirect_uri", "code_verifier"))
        given = await services.grants.redeem(client, *words)
    elif kind == "refresh_token":
        given = await services.grants.refresh(client, fields.get("refresh_token", ""), fields.get("scope", ""))
    elif kind == "client_credentials":
        given = await services.grants.own(client, fields.get("scope", ""))
    else:
        raise OAuthRefused("unsupported_grant_type", f"{kind[:100]!a} is not a supported grant type")
    return _unstored(await _answer(given, client, services, home))


async def _service(request: Request, fields: Mapping[str, str], services: Factory) -> Client | None:
    """Return the service that sent its secret as its refresh token, and no other credential."""
    if "Authorization" in request.headers or "client_secret" in fields:
        return None
    return await services.clients.service(fields.get("client_id", ""), fields.get("refresh_token", ""))


@router.post("/v2/oauth2/token/revoke")
async def revoke(request: Request, caller: Open, services: Services) -> JSONResponse:
    """Revoke a token for any client, since the globus CLI sends another client id than the token's."""
    fields = await form(request)
    if "Authorization" in request.headers:
        await authenticated(request, fields, services)
    if "token" not in fields:
        raise OAuthRefused("invalid_request", "token is missing")
    await services.grants.revoke(fields["token"])
    return _unstored({"active": False})


@router.post("/v2/oauth2/token/validate")
async def validate(request: Request, caller: Open, services: Services) -> JSONResponse:
    """Return whether an access or refresh token of the requesting client is valid; see `_own`."""
    return _unstored({"active": await _own(request, services) is not None})


@router.post("/v2/oauth2/token/introspect")
async def introspect(request: Request, caller: Open, services: Services, home: Home) -> JSONResponse:
    """Describe a valid token of the requesting client."""
    grant = await _own(request, services)
    if grant is None:
        return _unstored({"active": False})
    who = await services.identities.of(grant.caller.subject)
    claims = about(who, services.identities.usernames, grant.scopes)
    username = claims.pop("preferred_username")
    answer = {
        "active": True,
        "token_type": "Bearer",
        "scope": " ".join(grant.scopes),
        "client_id": grant.client,
        "iss": home,
        "aud": [grant.server, grant.client],
        "iat": int(grant.created_at),
        "nbf": int(grant.created_at),
        "exp": int(grant.expires_at or 0),
        **claims,
        "username": username,
        "identity_set": identity_set(who),
        "session_info": _session(grant, str(who.id), home),
    }
    return _unstored(answer)


async def _own(request: Request, services: Factory) -> Grant | None:
    """Return the valid token in a request of its client; None for refresh tokens of public clients.

    Anybody can name a public client. A thief of its refresh token could watch here, unnoticed, until the owner uses it.
    """
    fields = await form(request)
    client = await authenticated(request, fields, services)
    if "token" not in fields:
        raise OAuthRefused("invalid_request", "token is missing")
    grant = await services.grants.given(fields["token"])
    if grant is None or grant.client != client.id or (client.public and grant.kind == "refresh"):
        return None
    return grant


def _session(grant: Grant, who: str, home: str) -> dict[str, Any]:
    if grant.login_at is None:
        return {"authentications": {}}
    return {"authentications": {who: {"auth_time": int(grant.login_at), "idp": home, "acr": None, "amr": None}}}


async def _answer(given: IssuedTokens, client: Client, services: Factory, home: str) -> dict[str, Any]:
    first, *others = [token.document() for token in given.tokens]
    answer: dict[str, Any] = {**first, "other_tokens": others}
    if given.code and "openid" in given.code.scopes:
        who = await services.identities.of(given.caller.subject)
        answer["id_token"] = await services.keys.sign(
            {
                "iss": home,
                "aud": client.id,
                "iat": int(time.time()),
                "exp": int(time.time()) + LASTS,
                "auth_time": int(given.login_at or 0),
                **about(who, services.identities.usernames, given.code.scopes),
                **({"nonce": given.code.nonce} if given.code.nonce else {}),
            }
        )
    return answer


def _unstored(document: Mapping[str, Any]) -> JSONResponse:
    return JSONResponse(dict(document), headers={"Cache-Control": "no-store", "Pragma": "no-cache"})
