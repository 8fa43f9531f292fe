"""Tokens: the users that they stand for, and their end. Tokens are random, shown once, and kept as hashes."""

import hashlib
import math
import secrets
import time
from typing import NamedTuple

from broker.errors import Invalid, NotFound, Unauthenticated
from broker.models.access import AuditEntry, Caller, IssuedToken, NewToken, TokenRecord
from broker.models.oauth import TRANSFER, Bearer
from broker.models.subjects import refusal
from broker.services.introspection import Introspection
from broker.services.issuers import Issuers
from broker.storage.access import Records
from broker.storage.database import Database, retried
from broker.storage.identities import Identities

__all__ = ["PREFIX", "Access", "hashed", "new_secret"]

PREFIX = "cogetb_"
"""So that people, and scanners for secrets, know one when they see it."""
REMEMBERED = 5.0
"""Seconds for which a token is believed without a look into the database: so long may one live that another process has
revoked. None is believed after it expired.
"""
MOST_REMEMBERED = 10_000
DAY = 86_400.0


class Believed(NamedTuple):
    """The user of a token, and until when that is believed."""

    bearer: Bearer
    until: float


def new_secret() -> str:
    """One that nobody guesses."""
    return PREFIX + secrets.token_urlsafe(32)


def hashed(secret: str) -> str:
    """Return the hash under which a token is kept; secrets are random, and need no salt."""
    return hashlib.sha256(secret.encode(errors="surrogatepass")).hexdigest()


def _ended(credential: str) -> Unauthenticated:
    said = "the token is unknown, expired or revoked"
    return Unauthenticated(said, "log in again, or ask an admin for one", credential)


class Access:
    """Tokens, and what was done with them."""

    def __init__(self, database: Database, issuers: Issuers, introspection: Introspection | None = None) -> None:
        self._database = database
        self._issuers = issuers
        self._introspection = introspection
        self._believed: dict[str, Believed] = {}
        self._doubts = 0
        self._known: set[str] = set()

    async def caller(self, token: str) -> Caller:
        """Return the user of a token that is good for the broker itself: one of ours, or one of an issuer.

        :raises Unauthenticated: the same, whatever is wrong with it
        :raises Forbidden: when an issuer's gives no role here
        """
        return (await self.bearer(token, TRANSFER)).caller

    async def bearer(self, token: str, server: str) -> Bearer:
        """Return the user of a token that is good for this resource server.

        :raises Unauthenticated: the same, whatever is wrong with it
        :raises Forbidden: when an issuer's gives no role here
        """
        if not token.startswith(PREFIX):
            if self._introspection and not self._issuers.signed(token):
                return Bearer(await self._met(await self._introspection.caller(token)))
            if token.count(".") == 2:
                return Bearer(await self._met(await self._issuers.caller(token)))
        bearer = await self._ours(token)
        if bearer.server not in (None, server):
            raise _ended(hashed(token))
        return bearer

    async def _ours(self, token: str) -> Bearer:
        """:raises Unauthenticated: with its hash if it was good once"""
        key, now = hashed(token), time.time()
        believed = self._believed.get(key)
        if believed and now < believed.until:
            return believed.bearer
        before = self._doubts
        async with self._database.read() as connection:
            records = Records(connection)
            bearer = await records.bearer(key, now)
            known = bearer is not None or await records.known(key)
        if bearer is None:
            self._believed.pop(key, None)
            raise _ended(key if known else "")
        if len(self._believed) >= MOST_REMEMBERED:
            self._believed.clear()
        if before == self._doubts:  # what was read may be from before a revocation
            self._believed[key] = Believed(bearer, min(now + REMEMBERED, bearer.expires_at or math.inf))
        return bearer

    async def _met(self, caller: Caller) -> Caller:
        """Somebody whom an issuer has named, who is known from now on: rules may name them by their UUID."""
        if caller.subject not in self._known:
            await self._meet(caller.subject)
            if len(self._known) >= MOST_REMEMBERED:
                self._known.clear()
            self._known.add(caller.subject)
        return caller

    @retried
    async def _meet(self, subject: str) -> None:
        async with self._database.write() as connection:
            await Identities(connection).seen(subject, time.time())

    def doubt(self) -> None:
        """Believe no token any more without asking: some were revoked."""
        self._believed.clear()
        self._doubts += 1

    @retried
    async def issue(self, by: str, new: NewToken, issuer: int | None = None) -> IssuedToken:
        """A new token.

        :param issuer: number of the token with which it is issued
        :raises Invalid: when nobody may be called so
        """
        if why := refusal(new.subject):
            raise Invalid(f"{new.subject} {why}", "choose another name")
        token, now = new_secret(), time.time()
        expires_at = None if new.days is None else now + new.days * DAY
        async with self._database.write() as connection:
            records = Records(connection)
            record = await records.add(new, hashed(token), now, expires_at, issuer)
            await Identities(connection).seen(new.subject, now)
            await records.note(now, by, "issue token", f"{record.id} for {new.subject}, {new.role}")
        return IssuedToken.model_construct(**record.model_dump(), token=token)

    @retried
    async def revoke(self, by: str, number: int, issued: bool = False) -> list[TokenRecord]:
        """End a token, or a login, and all that came of it; return the good tokens that were issued with it.

        :param issued: end those, too
        :raises NotFound: when there is no such token that was not revoked
        """
        now = time.time()
        async with self._database.write() as connection:
            records = Records(connection)
            if not await records.revoke(number, now):
                raise NotFound(f"there is no token {number} to revoke", "see GET /broker/v1/tokens")
            await records.note(now, by, "revoke token", str(number))
            found = await records.issued(number, now)
            for each in found if issued else ():
                await records.revoke(each.id, now)
                await records.note(now, by, "revoke token", f"{each.id}, issued with {number}")
        self.doubt()
        return found

    async def tokens(self) -> list[TokenRecord]:
        """Return the tokens that were issued, and people's logins, the newest first."""
        async with self._database.read() as connection:
            return await Records(connection).tokens()

    async def audit(self, before: int | None, limit: int) -> list[AuditEntry]:
        """The newest changes first."""
        async with self._database.read() as connection:
            return await Records(connection).changes(limit, before=before)
