"""Subjects in the database: identities, locks, and the renaming of a subject in all tables."""

from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple
from uuid import UUID

from sqlalchemy import ColumnElement, Table, UniqueConstraint, and_, delete, func, or_, select, true, update
from sqlalchemy.ext.asyncio import AsyncConnection

from broker.errors import Forbidden
from broker.models.identities import Identity, identity, next_id
from broker.models.subjects import Foreign
from broker.schema import METADATA
from broker.schema.access import clients, former_hosts, identities, locks
from broker.schema.collections import access_rules
from broker.storage.dialects import insert

__all__ = ["SUBJECTS", "IdentityStore", "Lock", "Subjects"]

SUBJECTS = tuple(column for table in METADATA.sorted_tables for column in table.columns if "subject" in column.info)
"""All columns with subjects."""
ONLY = {
    access_rules.c.principal: access_rules.c.principal_type == "identity",
    clients.c.name: clients.c.role.is_not(None),
}
"""Conditions for columns that have a subject in only some rows."""
ASSIGN = "ask an admin to assign it: coget-broker subject assign"


class Lock(NamedTuple):
    """A locked subject, which the broker cannot match to a person.

    :param was: name before the lock
    """

    subject: str
    was: str
    reason: str
    at: float


class Subjects:
    """Locked subjects, and the renaming of subjects."""

    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection

    async def locks(self, name: str | None = None) -> list[Lock]:
        """Return all locks by name, or the lock whose subject has or had this name."""
        chosen = select(locks).order_by(locks.c.was)
        chosen = chosen if name is None else chosen.where(or_(locks.c.subject == name, locks.c.was == name))
        return [Lock(*row) for row in await self._connection.execute(chosen)]

    async def unlock(self, lock: Lock) -> None:
        """Unlock a subject."""
        await self._connection.execute(delete(locks).where(locks.c.subject == lock.subject))

    async def keep_locked(self, lock: Lock, reason: str) -> None:
        """Change the reason of a lock."""
        await self._connection.execute(update(locks).where(locks.c.subject == lock.subject).values(reason=reason))

    async def give(self, old: str, new: str) -> int:
        """Rename a subject in all rows, except those that would duplicate one of `new`; return the number of these."""
        await self._keep_older_id(old, new)
        left = 0
        for column in SUBJECTS:
            mine = and_(column == old, ONLY.get(column, true()))
            same = [_same(column.table, column.name, key, new) for key in _keys(column.table, column.name)]
            renamed = update(column.table).where(mine, *(~each for each in same)).values({column.name: new})
            await self._connection.execute(renamed)
            stays = select(func.count()).select_from(column.table).where(mine)
            left += (await self._connection.execute(stays)).scalar_one() if same else 0
        return left

    async def _keep_older_id(self, old: str, new: str) -> None:
        """Keep the older of two subjects' UUIDs; access rules with the other UUID are changed to the subject `new`."""
        both = select(identities).where(identities.c.subject.in_((old, new)))
        rows = (await self._connection.execute(both.order_by(identities.c.first_seen, identities.c.subject))).all()
        for row in rows[1:]:
            same = _same(access_rules, "principal", ("collection_id", "principal_type", "path"), new)
            by_id = (access_rules.c.principal == row.id, access_rules.c.principal_type == "identity", ~same)
            await self._connection.execute(update(access_rules).where(*by_id).values(principal=new))
            await self._connection.execute(delete(identities).where(identities.c.id == row.id))


def _keys(table: Table, name: str) -> Iterable[tuple[str, ...]]:
    """Return the other columns of each key of a table that includes a column."""
    keys = [table.primary_key, *(each for each in table.constraints if isinstance(each, UniqueConstraint))]
    found = [tuple(column.name for column in key.columns) for key in keys]
    return [tuple(each for each in key if each != name) for key in found if name in key]


def _same(table: Table, name: str, key: tuple[str, ...], value: str) -> ColumnElement[bool]:
    """Return the condition that another row has this value, and the same values in the key's other columns."""
    other = table.alias("other")
    alike = (other.c[each].is_not_distinct_from(table.c[each]) for each in key)
    return select(other).where(other.c[name] == value, *alike).correlate(table).exists()


class IdentityStore:
    """Subjects, by their UUIDs."""

    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection

    async def seen(self, subject: str, now: float, name: str | None = None, email: str | None = None) -> None:
        """Record that a subject has used the broker, with its name and email address if given.

        :raises Forbidden: when the subject is locked
        """
        if (await self._connection.execute(select(locks.c.reason).where(locks.c.subject == subject))).first():
            raise Forbidden(f"{subject} is locked: its owner is unknown", ASSIGN)
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
        """Return the UUIDs of these subjects: the stored ones; for new subjects, the UUIDs that they would get."""
        known = {each.subject: each.id for each in await self.by_subject(list(subjects))}
        unknown = [each for each in subjects if each not in known]
        taken: set[UUID] = set()
        firsts = await self._firsts(unknown) if unknown else {}
        while found := await self.by_id([next_id(*each, taken.__contains__) for each in firsts.items()]):
            taken |= {each.id for each in found}
        return known | {each: next_id(each, first, taken.__contains__) for each, first in firsts.items()}

    async def _firsts(self, subjects: Collection[str]) -> dict[str, UUID]:
        """Return the default UUIDs of these subjects, which for renamed subjects derive from the former name."""
        formers = {row.host: row.issuer for row in await self._connection.execute(select(former_hosts))}
        found = {}
        for each in subjects:
            person, host = Foreign.read(each), each.rpartition("@")[2]
            names = [person.former(at) for at, issuer in formers.items() if person and person.issuer == issuer]
            found[each] = identity(next((name for name in names if name), each))
            if host in formers:  # the default UUID belongs to a user of the host's issuer
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
