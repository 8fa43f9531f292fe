"""Login at an identity provider: OpenID Connect, authorization code flow, with PKCE.

The browser keeps the signed state of its login in a cookie, so that no other browser can complete the login.
"""

import base64
import hashlib
import hmac
import secrets
import time
from collections.abc import Awaitable, Mapping
from typing import Any, NamedTuple
from urllib.parse import quote_plus, urlencode

import httpx
import jwt

from broker.config.identity_providers import ProviderSettings as Configured
from broker.errors import Invalid, Unauthenticated, Unavailable
from broker.models.callers import Caller
from broker.services.addresses import issuer_policy
from broker.services.auth.issuers import Issuers, document
from broker.services.auth.keys import SigningKeys
from coalloc.util.addresses import Network

__all__ = ["PATIENCE", "Named", "Provider"]

PATIENCE = 600.0
"""Most seconds that a user may take to log in to the provider."""
SEALED = "hand-over"
LONGEST = 3800
"""Largest cookie in bytes that all browsers store."""


class Named(NamedTuple):
    """A user named by the provider.

    :param query: query of the request that needed the login
    """

    caller: Caller
    name: str | None
    email: str | None
    query: str


class Provider:
    """The configured identity provider.

    :param networks: networks whose private and loopback addresses its documents may name
    """

    def __init__(
        self, configured: Configured, issuers: Issuers, keys: SigningKeys, networks: tuple[Network, ...] = ()
    ) -> None:
        self._configured = configured
        self._policy = issuer_policy(networks, configured.issuer)
        self._issuers = issuers
        self._keys = keys

    async def away(self, back: str, query: str) -> tuple[str, str]:
        """Return the URL of the provider's login page, and the value of the browser's cookie.

        :param back: URL to which the provider redirects the user afterwards
        :param query: query of the request that needs the login
        :raises Invalid: when the query is too long for a cookie
        :raises Unavailable: when the provider does not answer
        """
        state, nonce, verifier = (secrets.token_urlsafe(32) for _ in range(3))
        sealed = await self._keys.sign(
            {
                "aud": SEALED,
                "exp": int(time.time() + PATIENCE),
                "state": state,
                "nonce": nonce,
                "verifier": verifier,
                "query": query,
            }
        )
        if len(sealed) > LONGEST:
            raise Invalid("the request is too long", "request fewer scopes, or send a shorter state")
        digest = hashlib.sha256(verifier.encode()).digest()
        parameters = {
            "client_id": self._configured.client_id,
            "response_type": "code",
            "redirect_uri": back,
            "scope": self._configured.scope,
            "state": state,
            "nonce": nonce,
            "code_challenge": base64.urlsafe_b64encode(digest).rstrip(b"=").decode(),
            "code_challenge_method": "S256",
        }
        known = await self._ask(self._discovered())
        return f"{known['authorization_endpoint']}?{urlencode(parameters)}", sealed

    async def home(self, sealed: str, state: str, code: str, back: str) -> Named:
        """Complete a login, and return its user.

        :param sealed: value of the browser's cookie
        :param state: state that the provider returned
        :param code: authorization code of the provider
        :param back: the same URL as for `away`
        :raises Unauthenticated: when the login was not started in this browser, or the provider refuses it
        :raises NoRole: when the user has no role here
        :raises Unavailable: when the provider does not answer
        """
        try:
            memory = await self._keys.read(sealed, SEALED)
        except jwt.PyJWTError:
            raise _strange() from None
        if not hmac.compare_digest(str(memory["state"]).encode(), state.encode(errors="replace")):
            raise _strange()
        claims = await self._ask(self._claims(code, back, memory))
        caller = self._issuers.admitted(self._configured.issuer, claims)
        return Named(caller, _text(claims.get("name")), _text(claims.get("email")), str(memory["query"]))

    async def _claims(self, code: str, back: str, memory: Mapping[str, Any]) -> dict[str, Any]:
        """Return the claims of the ID token, with those of the provider's userinfo endpoint for the same subject."""
        known = await self._discovered()
        form = {"grant_type": "authorization_code", "code": code, "redirect_uri": back}
        form["code_verifier"] = str(memory["verifier"])
        who = (quote_plus(self._configured.client_id), quote_plus(self._configured.client_secret))
        given = await document(str(known["token_endpoint"]), self._policy, "POST", data=form, auth=who)
        claims = await self._issuers.claims(str(given["id_token"]), self._configured.issuer, self._configured.client_id)
        if claims.get("nonce") != memory["nonce"]:
            raise _strange()
        if "userinfo_endpoint" not in known:
            return claims
        bearer = {"Authorization": f"Bearer {given['access_token']}"}
        more = await document(str(known["userinfo_endpoint"]), self._policy, headers=bearer)
        return {**more, **claims} if more.get("sub") == claims["sub"] else claims

    async def _discovered(self) -> dict[str, Any]:
        address = f"{self._configured.issuer.rstrip('/')}/.well-known/openid-configuration"
        return await document(address)

    async def _ask(self, answer: Awaitable[dict[str, Any]]) -> dict[str, Any]:
        try:
            return await answer
        except httpx.HTTPStatusError as error:
            if error.response.status_code < 500:
                raise Unauthenticated("the identity provider refused the login", "try again") from None
            raise self._away(error) from error
        except (httpx.HTTPError, httpx.InvalidURL, KeyError, ValueError) as error:
            raise self._away(error) from error

    def _away(self, error: Exception) -> Unavailable:
        return Unavailable(
            f"{self._configured.issuer} does not answer: {type(error).__name__}", "try again in a moment"
        )


def _strange() -> Unauthenticated:
    return Unauthenticated("this login was not started in this browser", "begin again")


def _text(claim: object) -> str | None:
    return claim[:200] if isinstance(claim, str) and claim else None
