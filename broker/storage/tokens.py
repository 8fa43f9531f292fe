"""Tokens and the audit log in the database."""

from sqlalchemy import func, select
from sqlalchemy.ext.asyncio import AsyncConnection

from broker.models.callers import AuditEntry, Caller, NewToken, TokenRecord, lesser
from broker.models.oauth import Bearer
from broker.schema.access import audit, clients, tokens
from broker.storage.grants import GrantStore, good

__all__ = ["TokenStore"]

SHOWN = [tokens.c[name] for name in TokenRecord.model_fields]
LASTING = ("token", "login")
"""The kinds of tokens that admins manage; all others derive from these or from a client, and are revoked with them."""


class TokenStore:
    """Tokens, and the audit log of changes."""

    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection

    async def add(
        self, token: NewToken, hashed: str, now: float, expires_at: float | None, issuer: int | None
    ) -> TokenRecord:
        """Add a token; only its hash is stored."""
        values = {
            "hash": hashed,
            "subject": token.subject,
            "role": token.role,
            "site": token.site,
            "created_at": now,
            "expires_at": expires_at,
            "issuer_id": issuer,
        }
        rows = await self._connection.execute(tokens.insert().values(values).returning(*SHOWN))
        return TokenRecord.model_construct(**rows.one()._mapping)

    async def hold(self, number: int, now: float) -> bool:
        """Return whether a token is valid, and lock it until the transaction ends, so that it cannot be revoked."""
        query = select(tokens.c.id).where(tokens.c.id == number, good(now)).with_for_update()
        return (await self._connection.execute(query)).scalar() is not None

    async def bearer(self, hashed: str, now: float) -> Bearer | None:
        """Return the owner and limits of a token that is valid for requests; None if it is invalid."""
        query = select(tokens, clients.c.made_by).outerjoin(clients, clients.c.id == tokens.c.client_id)
        query = query.where(tokens.c.hash == hashed, tokens.c.kind.in_(("token", "access")), good(now))
        row = (await self._connection.execute(query)).one_or_none()
        if row is None:
            return None
        known = Bearer(
            Caller.model_construct(subject=row.subject, role=row.role, site=row.site),
            number=row.id,
            issued=row.kind == "token",
            expires_at=row.expires_at,
        )
        if row.kind == "token":
            return known
        # no admin has approved a client that registered itself
        role = row.role if row.made_by is not None else lesser(row.role, "curator")
        return known._replace(
            caller=known.caller.model_copy(update={"role": role}),
            server=row.server,
            scopes=frozenset(row.scopes.split()),
            client=row.client_id,
            number=await self._origin(row.id),
        )

    async def known(self, hashed: str) -> bool:
        """Return whether a token with this hash exists, valid or not."""
        query = select(tokens.c.id).where(tokens.c.hash == hashed)
        return (await self._connection.execute(query)).first() is not None

    async def _origin(self, number: int) -> int:
        """Return the number of the login or issued token that a token derives from, otherwise its own."""
        line = select(tokens.c.id, tokens.c.parent_id, tokens.c.kind).where(tokens.c.id == number)
        found = line.cte("line", recursive=True)
        above = select(tokens.c.id, tokens.c.parent_id, tokens.c.kind).where(tokens.c.id == found.c.parent_id)
        found = found.union_all(above)
        first = select(func.min(found.c.id)).where(found.c.kind.in_(LASTING))
        return (await self._connection.execute(first)).scalar() or number

    async def issued(self, number: int, now: float) -> list[TokenRecord]:
        """Return valid tokens that were issued with this token, directly or through others, the oldest first."""
        theirs = select(tokens.c.id).where(tokens.c.issuer_id == number).cte("theirs", recursive=True)
        theirs = theirs.union(select(tokens.c.id).where(tokens.c.issuer_id == theirs.c.id))
        listed = select(*SHOWN).where(tokens.c.id.in_(select(theirs.c.id)), good(now)).order_by(tokens.c.id)
        return [TokenRecord.model_construct(**row._mapping) for row in await self._connection.execute(listed)]

    async def ended(self, number: int, now: float) -> bool:
        """Return whether a token of tasks was revoked, or, if an admin issued it, has expired.

        Expired logins and tokens of clients do not end tasks; such tokens are deleted later.
        """
        query = select(tokens.c.kind, tokens.c.revoked_at, tokens.c.expires_at).where(tokens.c.id == number)
        row = (await self._connection.execute(query)).one_or_none()
        if row is None:
            return False
        expired = row.kind == "token" and row.expires_at is not None and row.expires_at <= now
        return row.revoked_at is not None or expired

    async def limit(self, number: int) -> float | None:
        """Return the time at which the token, and all that derive from it, expire; None if there is no limit."""
        query = select(tokens.c.limit_at).where(tokens.c.id == number)
        return (await self._connection.execute(query)).scalar()

    async def withdrawn(self, number: int, now: float) -> bool:
        """Return whether a token of timers has `ended`, or no longer exists, as tokens of deleted clients do."""
        query = select(tokens.c.id).where(tokens.c.id == number)
        return (await self._connection.execute(query)).first() is None or await self.ended(number, now)

    async def tokens(self) -> list[TokenRecord]:
        """Return the issued tokens and the logins, the newest first."""
        listed = select(*SHOWN).where(tokens.c.kind.in_(LASTING)).order_by(tokens.c.id.desc())
        return [TokenRecord.model_construct(**row._mapping) for row in await self._connection.execute(listed)]

    async def revoke(self, number: int, now: float) -> bool:
        """Revoke a token and all its descendants; return whether it existed and was not yet revoked."""
        listed = select(tokens.c.revoked_at).where(tokens.c.id == number, tokens.c.kind.in_(LASTING))
        row = (await self._connection.execute(listed)).one_or_none()
        if row is None or row.revoked_at is not None:
            return False
        await GrantStore(self._connection).revoke(number, now)
        return True

    async def note(self, at: float, subject: str, action: str, thing: str) -> None:
        """Add an entry to the audit log, in the transaction of the change."""
        values = {"at": at, "subject": subject, "action": action, "thing": thing}
        await self._connection.execute(audit.insert().values(values))

    async def changes(
        self,
        limit: int,
        *,
        subject: str | None = None,
        action: str | None = None,
        before: int | None = None,
        after: int | None = None,
    ) -> list[AuditEntry]:
        """Return changes, the newest first.

        :param subject: subject that made the changes; None for all
        :param action: kind of change; None for all
        :param before: number of a change, to return the newest changes before it
        :param after: number of a change, to return the oldest changes after it, for paging towards newer ones
        """
        conditions = {audit.c.subject: subject, audit.c.action: action}
        query = select(audit).where(*(column == value for column, value in conditions.items() if value is not None))
        if after is not None:
            rows = await self._connection.execute(query.where(audit.c.id > after).order_by(audit.c.id).limit(limit))
            return [AuditEntry.model_construct(**row._mapping) for row in rows][::-1]
        newest = query.order_by(audit.c.id.desc()).limit(limit)
        rows = await self._connection.execute(newest if before is None else newest.where(audit.c.id < before))
        return [AuditEntry.model_construct(**row._mapping) for row in rows]
