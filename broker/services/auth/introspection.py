"""Authentication of opaque tokens, which the broker sends to an authorization server for introspection (RFC 7662).

Only one server is supported: an opaque token does not name its issuer, and must not be sent to another server. Answers
are cached for `REMEMBERED` seconds by the token's hash; no token is stored or logged.
"""

import asyncio
import hashlib
import time
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple
from urllib.parse import quote_plus

import httpx

from broker.config.identity_providers import IntrospectionSettings as Configured
from broker.errors import Unauthenticated, Unavailable
from broker.models.callers import Caller
from broker.services.auth.issuers import admitted, document, words

__all__ = ["Introspection", "good"]

REMEMBERED = 30.0
"""Seconds for which an answer is cached, and for which a revoked token may still be accepted."""
MOST_REMEMBERED = 10_000
SECONDS = 5.0
AT_ONCE = 16
"""Most concurrent requests to the server, since any client can send tokens."""


class CachedClaims(NamedTuple):
    """The claims of a token, None if it is invalid, and the expiry time of this cache entry."""

    claims: Mapping[str, Any] | None
    until: float


class Introspection:
    """The client of the configured authorization server."""

    def __init__(self, configured: Configured) -> None:
        self._configured = configured
        self._known: dict[bytes, CachedClaims] = {}
        self._asking = asyncio.Semaphore(AT_ONCE)

    async def caller(self, token: str) -> Caller:
        """Return the user of a token, with their role.

        :raises Unauthenticated: when the token is invalid; the message is the same for every reason
        :raises Forbidden: when the token is valid, but grants no role here
        :raises Unavailable: when the server does not answer
        """
        key = hashlib.sha256(token.encode(errors="surrogatepass")).digest()
        claims = self._cached(key)
        if claims is None:
            async with self._asking:
                claims = self._cached(key) or await self._learn(key, token)
        if claims.claims is None:
            raise Unauthenticated("the token is unknown, expired or revoked", "log in again, or ask an admin for one")
        return admitted(self._issuer(claims.claims.get("iss")), self._configured.roles, claims.claims)

    def _issuer(self, issuer: object) -> str:
        """Return the issuer for subjects' names: the configured one, otherwise the server's own URL.

        An issuer in the server's answer is appended to that URL, so that the server cannot name users of other issuers,
        and users of its several issuers have different subjects.
        """
        if self._configured.issuer or issuer is None:
            return self._configured.issuer or self._configured.url
        return f"{self._configured.url}#{issuer}"

    def _cached(self, key: bytes) -> CachedClaims | None:
        known = self._known.get(key)
        return known if known and time.time() < known.until else None

    async def _learn(self, key: bytes, token: str) -> CachedClaims:
        answer, now = await self._ask(token), time.time()
        claims = answer if good(answer, self._configured.audience, now, self._configured.issuer) else None
        until = now + REMEMBERED if claims is None else float(min(now + REMEMBERED, claims["exp"]))
        if len(self._known) >= MOST_REMEMBERED:
            self._known.clear()
        self._known[key] = CachedClaims(claims, until)
        return self._known[key]

    async def _ask(self, token: str) -> dict[str, Any]:
        who = (quote_plus(self._configured.client_id), quote_plus(self._configured.client_secret))
        form = {"token": token, "token_type_hint": "access_token"}
        try:
            async with asyncio.timeout(SECONDS):
                return await document(self._configured.url, method="POST", data=form, auth=who)
        except (httpx.HTTPError, httpx.InvalidURL, ValueError, TimeoutError) as error:
            message = f"{self._configured.url} does not answer a token query: {type(error).__name__}"
            raise Unavailable(
                message, "try again in a moment"
            ) from None  # the original error contains the request with the token


def good(answer: Mapping[str, Any], audience: Collection[str], now: float, issuer: str = "") -> bool:
    """Return whether an answer describes a valid bearer token for the broker, with a subject.

    :param answer: answer of the server
    :param audience: accepted audiences; the token must have one of them
    :param now: seconds since the epoch
    :param issuer: required issuer, if the answer names one; empty for any

    >>> answer = {"active": True, "exp": 20, "aud": ["us", "them"], "sub": "ann", "token_type": "Bearer"}
    >>> good(answer, ["us"], 10), good(answer, ["us"], 20), good(answer, ["others"], 10)
    (True, False, False)
    >>> good({**answer, "active": "true"}, ["us"], 10), good({**answer, "token_type": "DPoP"}, ["us"], 10)
    (False, False)
    >>> good({**answer, "iss": "https://b/"}, ["us"], 10), good({**answer, "iss": "https://b/"}, ["us"], 10, "https://a/")
    (True, False)
    """
    since, until, by = answer.get("nbf", 0), answer.get("exp"), answer.get("iss")
    return (
        answer.get("active") is True
        and isinstance(until, int | float)
        and isinstance(since, int | float)
        and since <= now < until
        and not set(words(answer.get("aud"))).isdisjoint(audience)
        and isinstance(answer.get("sub"), str)
        and answer["sub"] != ""
        and str(answer.get("token_type", "bearer")).lower() == "bearer"
        and (by is None or by == issuer or (not issuer and isinstance(by, str)))
    )
