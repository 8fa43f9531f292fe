"""Tokens and the audit log in the database."""

from sqlalchemy import and_, or_, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from broker.models.access import AuditEntry, Caller, NewToken, TokenRecord
from broker.schema.access import audit, tokens

__all__ = ["Records"]

SHOWN = [column for column in tokens.c if column.name != "hash"]


class Records:
    """Who may come in, and what they changed."""

    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection

    async def add(self, token: NewToken, hashed: str, now: float, expires_at: float | None) -> TokenRecord:
        """A new token, of which only the hash is kept."""
        values = {
            "hash": hashed,
            "subject": token.subject,
            "role": token.role,
            "site": token.site,
            "created_at": now,
            "expires_at": expires_at,
        }
        rows = await self._connection.execute(tokens.insert().values(values).returning(*SHOWN))
        return TokenRecord.model_construct(**rows.one()._mapping)

    async def caller(self, hashed: str, now: float) -> Caller | None:
        """Whose token this is, if it is good now."""
        good = and_(tokens.c.revoked_at.is_(None), or_(tokens.c.expires_at.is_(None), tokens.c.expires_at > now))
        asked = select(tokens.c.subject, tokens.c.role, tokens.c.site).where(tokens.c.hash == hashed, good)
        row = (await self._connection.execute(asked)).one_or_none()
        return row and Caller.model_construct(**row._mapping)

    async def tokens(self) -> list[TokenRecord]:
        """All, the newest first."""
        rows = await self._connection.execute(select(*SHOWN).order_by(tokens.c.id.desc()))
        return [TokenRecord.model_construct(**row._mapping) for row in rows]

    async def revoke(self, number: int, now: float) -> bool:
        """End a token; whether there was such a one that was not revoked."""
        done = await self._connection.execute(
            update(tokens).where(tokens.c.id == number, tokens.c.revoked_at.is_(None)).values(revoked_at=now)
        )
        return bool(done.rowcount)

    async def note(self, at: float, subject: str, action: str, thing: str) -> None:
        """Who changed what; in the transaction of the change."""
        values = {"at": at, "subject": subject, "action": action, "thing": thing}
        await self._connection.execute(audit.insert().values(values))

    async def audit(self, before: int | None, limit: int) -> list[AuditEntry]:
        """The newest changes first; those before one."""
        page = select(audit).order_by(audit.c.id.desc()).limit(limit)
        rows = await self._connection.execute(page if before is None else page.where(audit.c.id < before))
        return [AuditEntry.model_construct(**row._mapping) for row in rows]
