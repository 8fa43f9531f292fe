"""Who is it, and may they? Tokens are random, shown once, and kept as hashes."""

import hashlib
import secrets
import time
from typing import NamedTuple

from broker.errors import NotFound, Unauthenticated
from broker.models.access import AuditEntry, Caller, IssuedToken, NewToken, TokenRecord
from broker.services.issuers import Issuers
from broker.storage.access import Records
from broker.storage.database import Database, retried

__all__ = ["PREFIX", "Access"]

PREFIX = "cogetb_"
"""So that people, and scanners for secrets, know one when they see it."""
REMEMBERED = 5.0
"""Seconds for which a token is believed without a look into the database: so long may a revoked one live."""
MOST_REMEMBERED = 10_000
DAY = 86_400.0


class Believed(NamedTuple):
    """Whose token it is, and until when that is believed."""

    caller: Caller
    until: float


def _hash(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


class Access:
    """Tokens, and what was done with them."""

    def __init__(self, database: Database, issuers: Issuers) -> None:
        self._database = database
        self._issuers = issuers
        self._believed: dict[str, Believed] = {}

    async def caller(self, token: str) -> Caller:
        """Whose token it is: one of ours, or one that an issuer signed.

        :raises Unauthenticated: the same, whatever is wrong with it
        :raises Forbidden: when an issuer's gives no role here
        """
        if token.count(".") == 2 and not token.startswith(PREFIX):
            return await self._issuers.caller(token)
        hashed, now = _hash(token), time.time()
        believed = self._believed.get(hashed)
        if believed and now < believed.until:
            return believed.caller
        async with self._database.read() as connection:
            caller = await Records(connection).caller(hashed, now)
        if caller is None:
            self._believed.pop(hashed, None)
            raise Unauthenticated("the token is unknown, expired or revoked", "ask an admin for a new one")
        if len(self._believed) >= MOST_REMEMBERED:
            self._believed.clear()
        self._believed[hashed] = Believed(caller, now + REMEMBERED)
        return caller

    @retried
    async def issue(self, by: str, new: NewToken) -> IssuedToken:
        """A new token."""
        token, now = PREFIX + secrets.token_urlsafe(32), time.time()
        expires_at = None if new.days is None else now + new.days * DAY
        async with self._database.write() as connection:
            records = Records(connection)
            record = await records.add(new, _hash(token), now, expires_at)
            await records.note(now, by, "issue token", f"{record.id} for {new.subject}, {new.role}")
        return IssuedToken.model_construct(**record.model_dump(), token=token)

    @retried
    async def revoke(self, by: str, number: int) -> None:
        """:raises NotFound: when there is no such token that was not revoked"""
        now = time.time()
        async with self._database.write() as connection:
            records = Records(connection)
            if not await records.revoke(number, now):
                raise NotFound(f"there is no token {number} to revoke", "see GET /broker/v1/tokens")
            await records.note(now, by, "revoke token", str(number))
        self._believed.clear()

    async def tokens(self) -> list[TokenRecord]:
        """All, the newest first."""
        async with self._database.read() as connection:
            return await Records(connection).tokens()

    async def audit(self, before: int | None, limit: int) -> list[AuditEntry]:
        """The newest changes first."""
        async with self._database.read() as connection:
            return await Records(connection).audit(before, limit)
