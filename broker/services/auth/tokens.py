"""Tokens: authentication, issue and revocation. Tokens are random, shown once, and stored as hashes."""

import hashlib
import math
import secrets
import time
from typing import TYPE_CHECKING, NamedTuple

from broker.errors import Invalid, NotFound, Unauthenticated
from broker.models.callers import AuditEntry, Caller, IssuedToken, NewToken, TokenRecord
from broker.models.oauth import TRANSFER, Bearer
from broker.models.subjects import refusal
from broker.storage.database import Database, retried
from broker.storage.subjects import IdentityStore
from broker.storage.tokens import TokenStore

if TYPE_CHECKING:
    from broker.services.auth.introspection import Introspection
    from broker.services.auth.issuers import Issuers

__all__ = ["PREFIX", "AccessTokens", "hashed", "new_secret"]

PREFIX = "cogetb_"
"""Prefix by which people and secret scanners recognise a token."""
REMEMBERED = 5.0
"""Seconds for which a token is cached. For as long, a token may be accepted that another process has revoked; an
expired token never is.
"""
MOST_REMEMBERED = 10_000
DAY = 86_400.0


class CachedToken(NamedTuple):
    """A cached token and its user, and the time at which this cache entry expires."""

    bearer: Bearer
    until: float


def new_secret() -> str:
    """Return a new random token."""
    return PREFIX + secrets.token_urlsafe(32)


def hashed(secret: str) -> str:
    """Return the hash of a token for the database; random tokens need no salt."""
    return hashlib.sha256(secret.encode(errors="surrogatepass")).hexdigest()


def _ended(credential: str) -> Unauthenticated:
    message = "the token is unknown, expired or revoked"
    return Unauthenticated(message, "log in again, or ask an admin for one", credential)


class AccessTokens:
    """Tokens, and the audit log of changes.

    :param issuers: verifies signed tokens; without it, only the broker's own tokens are accepted
    :param introspection: describes other tokens
    """

    def __init__(
        self, database: Database, issuers: "Issuers | None" = None, introspection: "Introspection | None" = None
    ) -> None:
        self._database = database
        self._issuers = issuers
        self._introspection = introspection
        self._cached: dict[str, CachedToken] = {}
        self._times_cleared = 0
        self._known: set[str] = set()

    async def caller(self, token: str) -> Caller:
        """Return the user of a token for the broker itself, issued by the broker or by a configured issuer.

        :raises Unauthenticated: when the token is invalid; the message is the same for every reason
        :raises Forbidden: when an issuer's token grants no role here
        """
        return (await self.bearer(token, TRANSFER)).caller

    async def bearer(self, token: str, server: str) -> Bearer:
        """Authenticate a token for a resource server; return it with its user.

        :raises Unauthenticated: when the token is invalid; the message is the same for every reason
        :raises Forbidden: when an issuer's token grants no role here
        """
        if self._issuers and not token.startswith(PREFIX):
            if self._introspection and not self._issuers.signed(token):
                return Bearer(await self._met(await self._introspection.caller(token)))
            if token.count(".") == 2:
                return Bearer(await self._met(await self._issuers.caller(token)))
        bearer = await self._ours(token)
        if bearer.server not in (None, server):
            raise _ended(hashed(token))
        return bearer

    async def _ours(self, token: str) -> Bearer:
        """Authenticate a token of the broker. :raises Unauthenticated: with the token's hash if it was valid once"""
        key, now = hashed(token), time.time()
        cached = self._cached.get(key)
        if cached and now < cached.until:
            return cached.bearer
        before = self._times_cleared
        async with self._database.read() as connection:
            token_store = TokenStore(connection)
            bearer = await token_store.bearer(key, now)
            known = bearer is not None or await token_store.known(key)
        if bearer is None:
            self._cached.pop(key, None)
            raise _ended(key if known else "")
        if len(self._cached) >= MOST_REMEMBERED:
            self._cached.clear()
        if before == self._times_cleared:  # otherwise a token may have been revoked since the query
            self._cached[key] = CachedToken(bearer, min(now + REMEMBERED, bearer.expires_at or math.inf))
        return bearer

    async def _met(self, caller: Caller) -> Caller:
        """Record an issuer's user, so that access rules can name the user by UUID; return the user."""
        if caller.subject not in self._known:
            await self._meet(caller.subject)
            if len(self._known) >= MOST_REMEMBERED:
                self._known.clear()
            self._known.add(caller.subject)
        return caller

    @retried
    async def _meet(self, subject: str) -> None:
        async with self._database.write() as connection:
            await IdentityStore(connection).seen(subject, time.time())

    def clear_cache(self) -> None:
        """Clear the cache of tokens, after some were revoked."""
        self._cached.clear()
        self._times_cleared += 1

    @retried
    async def issue(self, by: str, new: NewToken, issuer: int | None = None) -> IssuedToken:
        """Issue a token, and return it.

        :param by: subject that issues it
        :param issuer: number of the token with which it is issued
        :raises Invalid: when the new token's subject is not allowed
        :raises Unauthenticated: when the token with which it is issued is no longer valid
        """
        if why := refusal(new.subject):
            raise Invalid(f"{new.subject} {why}", "choose another name")
        token, now = new_secret(), time.time()
        expires_at = None if new.days is None else now + new.days * DAY
        async with self._database.write() as connection:
            token_store = TokenStore(connection)
            if issuer is not None and not await token_store.hold(issuer, now):
                raise _ended("")
            record = await token_store.add(new, hashed(token), now, expires_at, issuer)
            await IdentityStore(connection).seen(new.subject, now)
            await token_store.note(now, by, "issue token", f"{record.id} for {new.subject}, {new.role}")
        return IssuedToken.model_construct(**record.model_dump(), token=token)

    @retried
    async def revoke(self, by: str, number: int, issued: bool = False) -> list[TokenRecord]:
        """Revoke a token or a login, and all tokens that derive from it; return valid tokens that were issued with it.

        :param issued: whether to revoke the returned tokens, too
        :raises NotFound: when there is no such token, or it was revoked before
        """
        now = time.time()
        async with self._database.write() as connection:
            token_store = TokenStore(connection)
            if not await token_store.revoke(number, now):
                raise NotFound(f"there is no token {number} to revoke", "choose one listed by GET /broker/v1/tokens")
            await token_store.note(now, by, "revoke token", str(number))
            found = await token_store.issued(number, now)
            for each in found if issued else ():
                await token_store.revoke(each.id, now)
                await token_store.note(now, by, "revoke token", f"{each.id}, issued with {number}")
        self.clear_cache()
        return found

    async def all(self) -> list[TokenRecord]:
        """Return the issued tokens and the browser logins, the newest first."""
        async with self._database.read() as connection:
            return await TokenStore(connection).tokens()

    async def audit(self, before: int | None, limit: int) -> list[AuditEntry]:
        """Return the audit log, the newest entry first.

        :param before: number of an entry, to return only older entries; None for all
        :param limit: most entries to return
        """
        async with self._database.read() as connection:
            return await TokenStore(connection).changes(limit, before=before)
