"""Locked subjects, and the renaming of a subject in all tables."""

from collections.abc import Iterable
from typing import NamedTuple

from sqlalchemy import ColumnElement, Table, UniqueConstraint, and_, delete, func, or_, select, true, update
from sqlalchemy.ext.asyncio import AsyncConnection

from broker.schema import METADATA
from broker.schema.access import clients, identities, locks
from broker.schema.collections import access_rules

__all__ = ["SUBJECTS", "Lock", "Subjects"]

SUBJECTS = tuple(column for table in METADATA.sorted_tables for column in table.columns if "subject" in column.info)
"""All columns that hold subjects."""
ONLY = {
    access_rules.c.principal: access_rules.c.principal_type == "identity",
    clients.c.name: clients.c.role.is_not(None),
}
"""Conditions for columns in which only some rows hold a subject."""


class Lock(NamedTuple):
    """A locked subject: the broker does not know which user it belongs to.

    :param was: its name before it was locked
    """

    subject: str
    was: str
    reason: str
    at: float


class Subjects:
    """Subjects and what belongs to them."""

    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection

    async def locks(self, name: str | None = None) -> list[Lock]:
        """Return the locks by name, or the one whose subject has, or had, this name."""
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
        """Rename a subject in all its rows, except those that the new name has too; return how many rows were left."""
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
        """Keep the older of two UUIDs; access rules that name the newer one then name the subject."""
        both = select(identities).where(identities.c.subject.in_((old, new)))
        rows = (await self._connection.execute(both.order_by(identities.c.first_seen, identities.c.subject))).all()
        for row in rows[1:]:
            same = _same(access_rules, "principal", ("collection_id", "principal_type", "path"), new)
            by_id = (access_rules.c.principal == row.id, access_rules.c.principal_type == "identity", ~same)
            await self._connection.execute(update(access_rules).where(*by_id).values(principal=new))
            await self._connection.execute(delete(identities).where(identities.c.id == row.id))


def _keys(table: Table, name: str) -> Iterable[tuple[str, ...]]:
    """Return, for each key of a table that has this column, the key's other columns."""
    keys = [table.primary_key, *(each for each in table.constraints if isinstance(each, UniqueConstraint))]
    found = [tuple(column.name for column in key.columns) for key in keys]
    return [tuple(each for each in key if each != name) for key in found if name in key]


def _same(table: Table, name: str, key: tuple[str, ...], value: str) -> ColumnElement[bool]:
    """Return the condition that another row has this value and the same values in the rest of the key."""
    other = table.alias("other")
    alike = (other.c[each].is_not_distinct_from(table.c[each]) for each in key)
    return select(other).where(other.c[name] == value, *alike).correlate(table).exists()
