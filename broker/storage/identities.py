"""Who was seen here, in the database."""

from collections.abc import Sequence
from uuid import UUID

from sqlalchemy import ColumnElement, func, select
from sqlalchemy.ext.asyncio import AsyncConnection

from broker.models.identities import Identity, identity
from broker.schema.access import identities
from broker.storage.upsert import insert

__all__ = ["Identities"]


class Identities:
    """Subjects, by their UUIDs."""

    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection

    async def seen(self, subject: str, now: float, name: str | None = None, email: str | None = None) -> None:
        """Somebody was here; what is known of them stays where nothing newer is said."""
        values = {"id": str(identity(subject)), "subject": subject, "name": name, "email": email}
        new = insert(self._connection, identities).values({**values, "first_seen": now, "last_seen": now})
        changes = {
            "last_seen": new.excluded.last_seen,
            "name": func.coalesce(new.excluded.name, identities.c.name),
            "email": func.coalesce(new.excluded.email, identities.c.email),
        }
        await self._connection.execute(new.on_conflict_do_update(index_elements=["id"], set_=changes))

    async def by_id(self, numbers: Sequence[UUID]) -> list[Identity]:
        """Those of these that are known."""
        return await self._where(identities.c.id.in_([str(number) for number in numbers]))

    async def by_subject(self, subjects: Sequence[str]) -> list[Identity]:
        """Those of these that are known."""
        return await self._where(identities.c.subject.in_(subjects))

    async def _where(self, which: ColumnElement[bool]) -> list[Identity]:
        rows = await self._connection.execute(select(identities).where(which).order_by(identities.c.subject))
        return [Identity(**{**row._mapping, "id": UUID(row.id)}) for row in rows]
