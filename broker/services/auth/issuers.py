"""Authentication of JWTs from OIDC providers, as in the WLCG and SciTokens profiles.

A token is accepted only from a configured issuer, with an algorithm that is configured for this issuer; algorithms with
a shared secret are impossible. It must be for the broker's audience, valid now, and have a subject. What a token says
about its algorithm or keys is not trusted.
"""

import asyncio
import json
import logging
import math
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import httpcore
import httpx
import jwt

from broker.config.identity_providers import Issuer
from broker.config.settings import LOOPBACK
from broker.errors import NoRole, Unauthenticated, Unavailable
from broker.models.callers import ROLES, Caller, Role
from broker.models.subjects import Foreign
from broker.services.addresses import issuer_policy
from coalloc.api import http_client
from coalloc.errors import SourceError
from coalloc.util.addresses import ANYWHERE, AddressPolicy, Network

__all__ = ["SECONDS", "Issuers", "admitted", "document", "words"]

log = logging.getLogger(__name__)

REMEMBERED = 3600.0
"""Seconds for which an issuer's keys are cached."""
PAUSE = 30.0
"""Seconds between two requests for an issuer's keys, after it lacked a key or did not answer."""
SECONDS = 10.0
LARGEST = 1 << 20
NO_TOKEN = (jwt.PyJWTError, RecursionError, OverflowError)
"""Errors of parsing an invalid token, which may be deeply nested, or have infinite times."""
CLAIMS = ("scope", "scp", "wlcg.groups", "groups", "roles", "entitlements")
"""Claims in which the profiles put permissions."""


class IssuerKeys(NamedTuple):
    """An issuer's keys by id, and the times (monotonic) of the last request for them and of the last answer."""

    by_id: Mapping[str, jwt.PyJWK]
    requested_at: float = -math.inf
    answered_at: float = -math.inf

    def of(self, number: str) -> jwt.PyJWK | None:
        """Return the key with this id; an empty id means the only key (OpenID Connect Core, section 10.1)."""
        return next(iter(self.by_id.values())) if not number and len(self.by_id) == 1 else self.by_id.get(number)


class Issuers:
    """The issuers whose tokens are accepted.

    :param networks: networks whose private and loopback addresses their documents may name
    """

    def __init__(self, issuers: Sequence[Issuer], networks: tuple[Network, ...] = ()) -> None:
        self._networks = networks
        self._issuers = {issuer.url: issuer for issuer in issuers}
        self._keys = {url: IssuerKeys({}) for url in self._issuers}
        self._asking = {url: asyncio.Lock() for url in self._issuers}

    async def caller(self, token: str) -> Caller:
        """Return the user of a token, with their role.

        :raises Unauthenticated: when the token is invalid; the message is the same for every reason
        :raises NoRole: when the token is valid, but grants no role here
        :raises Unavailable: when the issuer's keys cannot be fetched
        """
        issuer, claims = await self._verified(token, None)
        return admitted(issuer.url, issuer.roles, claims)

    def signed(self, token: str) -> bool:
        """Return whether a token names one of these issuers, without verifying it."""
        try:
            claims = jwt.decode(token, options={"verify_signature": False})
        except NO_TOKEN:
            return False
        return str(claims.get("iss")) in self._issuers

    async def claims(self, token: str, url: str, client: str) -> dict[str, Any]:
        """Return the claims of an ID token from an issuer, for the login of a user.

        :param url: URL of the required issuer
        :param client: id of the broker at the issuer, the token's required audience
        :raises Unauthenticated: when the token is invalid; the message is the same for every reason
        :raises Unavailable: when the issuer's keys cannot be fetched
        """
        issuer, claims = await self._verified(token, client)
        if issuer.url != url:
            raise _unknown()
        return claims

    def admitted(self, url: str, claims: Mapping[str, Any]) -> Caller:
        """Return the user in an issuer's claims, with their role. :raises NoRole: when the claims grant no role"""
        return admitted(url, self._issuers[url].roles, claims)

    async def _verified(self, token: str, client: str | None) -> tuple[Issuer, dict[str, Any]]:
        """Verify a token, and return its issuer and its claims.

        :param client: required audience; None for the audience configured for the issuer
        """
        try:
            header = jwt.get_unverified_header(token)
            unverified = jwt.decode(token, options={"verify_signature": False})
            issuer = self._issuers.get(str(unverified.get("iss")))
            if issuer is None or header.get("alg") not in issuer.algorithms:
                raise _unknown()
            key = await self._key(issuer, str(header.get("kid", "")))
            claims = jwt.decode(
                token,
                key,  # has a key type, which must fit the algorithm
                algorithms=list(issuer.algorithms),
                audience=list(issuer.audience) if client is None else client,
                issuer=issuer.url,
                options={"require": ["exp", "iss", "aud", "sub"]},
            )
        except jwt.ExpiredSignatureError:  # raised only if the signature is valid
            raise _unknown(f"{unverified.get('iss')} {unverified.get('sub')}"[:500]) from None
        except NO_TOKEN:
            raise _unknown() from None
        return issuer, claims

    async def _key(self, issuer: Issuer, number: str) -> jwt.PyJWK:
        async with self._asking[issuer.url]:  # one task requests the keys, the others wait for the answer
            now, known = time.monotonic(), self._keys[issuer.url]
            old = now > known.answered_at + REMEMBERED or known.of(number) is None
            if old and now > known.requested_at + PAUSE:
                known = self._keys[issuer.url] = known._replace(requested_at=now)
                try:
                    known = self._keys[issuer.url] = IssuerKeys(await self._fetched(issuer), now, now)
                except Unavailable as error:
                    log.warning("%s", error)
        if key := known.of(number):
            return key
        if not known.by_id:
            raise Unavailable(f"cannot fetch the keys of {issuer.url}", "try again in a moment")
        raise _unknown()

    async def _fetched(self, issuer: Issuer) -> dict[str, jwt.PyJWK]:
        """Fetch the issuer's keys from the URL in its OpenID document; return them by id."""
        try:
            known = await document(f"{issuer.url.rstrip('/')}/.well-known/openid-configuration")
            keys = await document(str(known["jwks_uri"]), issuer_policy(self._networks, issuer.url))
            return {key.key_id or "": key for key in jwt.PyJWKSet.from_dict(keys).keys}
        except (httpx.HTTPError, httpx.InvalidURL, jwt.PyJWTError, KeyError, ValueError) as error:
            message = f"cannot fetch the keys of {issuer.url}: {error or type(error).__name__}"
            raise Unavailable(message, "try again in a moment") from error


def _unknown(credential: str = "") -> Unauthenticated:
    message = "the token is not valid here"
    return Unauthenticated(message, "request a new one for this audience from your identity provider", credential)


async def document(url: str, policy: AddressPolicy = ANYWHERE, method: str = "GET", **request: Any) -> dict[str, Any]:
    """Fetch a JSON object by https, or from this machine also by http, without following redirects.

    :param policy: policy for the server's addresses; the default, for configured URLs, allows all
    :raises ValueError: :raises httpx.HTTPError: when the object cannot be fetched
    """
    parts = urlsplit(url)
    if parts.scheme != "https" and parts.hostname not in LOOPBACK:
        raise ValueError(f"{url} is not https")
    try:
        content = json.loads(await _read(url, policy, method, request))
    except RecursionError:
        raise ValueError(f"{url} is nested too deeply") from None
    if not isinstance(content, dict):
        raise ValueError(f"{url} is not a JSON object")
    return content


async def _read(url: str, policy: AddressPolicy, method: str, request: Mapping[str, Any]) -> bytes:
    read = bytearray()
    try:
        async with (
            asyncio.timeout(SECONDS),
            http_client(url, policy, SECONDS) as client,
            client.stream(method, url, **request) as answer,
        ):
            answer.raise_for_status()
            async for piece in answer.aiter_raw():
                read += piece
                if len(read) > LARGEST:
                    raise ValueError(f"{url} is too long")
    except (OSError, httpcore.NetworkError, httpcore.ProtocolError, httpcore.ProxyError, SourceError) as error:
        raise httpx.ConnectError(str(error) or type(error).__name__) from error
    return bytes(read)


def admitted(url: str, roles: Mapping[str, Role], claims: Mapping[str, Any]) -> Caller:
    """Return the user in an issuer's claims, with the highest role that the claims grant.

    :param url: URL of the issuer
    :param roles: roles by scope or group
    :raises Unauthenticated: when `sub` is invalid
    :raises NoRole: when the claims grant no role
    """
    granted = {word for name in CLAIMS for word in words(claims.get(name))}
    given = [roles[word] for word in granted if word in roles]
    try:
        subject = str(Foreign.of(claims.get("sub"), url))
    except ValueError as error:
        raise Unauthenticated(
            f"the token of {url} names no subject: {error}", "request another one from its identity provider"
        ) from None
    if not given:
        raise NoRole(subject)
    return Caller(subject=subject, role=max(given, key=ROLES.index))


def words(claim: object) -> list[str]:
    """Return the words of a claim, which is a string or a list; an empty list for other values."""
    if isinstance(claim, str):
        return claim.split()
    return [word for word in claim if isinstance(word, str)] if isinstance(claim, list) else []
