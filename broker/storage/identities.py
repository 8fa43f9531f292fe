"""Identities of the users seen here, in the database."""

from collections.abc import Collection, Sequence
from uuid import UUID

from sqlalchemy import ColumnElement, func, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from broker.errors import Forbidden
from broker.models.identities import Identity, identity, next_id
from broker.models.subjects import Foreign
from broker.schema.access import former_hosts, identities, locks
from broker.storage.dialects import insert

__all__ = ["IdentityStore"]

ASSIGN = "ask an admin to assign it: coget-broker subject assign"


class IdentityStore:
    """Subjects, by their UUIDs."""

    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection

    async def seen(self, subject: str, now: float, name: str | None = None, email: str | None = None) -> None:
        """Record that a subject made a request; known names and addresses stay unless newer ones are given.

        :raises Forbidden: when the subject is locked
        """
        if (await self._connection.execute(select(locks.c.reason).where(locks.c.subject == subject))).first():
            raise Forbidden(f"{subject} is locked: it is not known to whom it belongs", ASSIGN)
        number = (await self.ids([subject]))[subject]
        new = insert(self._connection, identities).values(
            {"id": str(number), "subject": subject, "first_seen": now, "last_seen": now}
        )
        await self._connection.execute(new.on_conflict_do_nothing())
        changes = {
            "last_seen": now,
            "name": func.coalesce(name, identities.c.name),
            "email": func.coalesce(email, identities.c.email),
        }
        await self._connection.execute(update(identities).where(identities.c.subject == subject).values(changes))

    async def ids(self, subjects: Collection[str]) -> dict[str, UUID]:
        """Return the UUIDs of these subjects: stored ones, or for subjects not seen yet those that they would get."""
        known = {each.subject: each.id for each in await self.by_subject(list(subjects))}
        unknown = [each for each in subjects if each not in known]
        taken: set[UUID] = set()
        firsts = await self._firsts(unknown) if unknown else {}
        while found := await self.by_id([next_id(*each, taken.__contains__) for each in firsts.items()]):
            taken |= {each.id for each in found}
        return known | {each: next_id(each, first, taken.__contains__) for each, first in firsts.items()}

    async def _firsts(self, subjects: Collection[str]) -> dict[str, UUID]:
        """Return the UUIDs meant for these subjects; a subject that was renamed keeps the UUID of its former name."""
        formers = {row.host: row.issuer for row in await self._connection.execute(select(former_hosts))}
        found = {}
        for each in subjects:
            person, host = Foreign.read(each), each.rpartition("@")[2]
            names = [person.former(at) for at, issuer in formers.items() if person and person.issuer == issuer]
            found[each] = identity(next((name for name in names if name), each))
            if host in formers:  # this UUID belongs to the user that the host's issuer names
                found[each] = next_id(each, found[each], {found[each]}.__contains__)
        return found

    async def by_id(self, numbers: Sequence[UUID]) -> list[Identity]:
        """Return the known identities with these UUIDs."""
        return await self._where(identities.c.id.in_([str(number) for number in numbers]))

    async def by_subject(self, subjects: Sequence[str]) -> list[Identity]:
        """Return the known identities of these subjects."""
        return await self._where(identities.c.subject.in_(subjects))

    async def _where(self, which: ColumnElement[bool]) -> list[Identity]:
        rows = await self._connection.execute(select(identities).where(which).order_by(identities.c.subject))
        return [Identity(**{**row._mapping, "id": UUID(row.id)}) for row in rows]
