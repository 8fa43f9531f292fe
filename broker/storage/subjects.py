"""Subjects that are locked, and how one is called by another name wherever it stands."""

from collections.abc import Iterable
from typing import NamedTuple

from sqlalchemy import ColumnElement, Table, UniqueConstraint, and_, delete, func, or_, select, true, update
from sqlalchemy.ext.asyncio import AsyncConnection

from broker.schema import METADATA
from broker.schema.access import clients, identities, locks
from broker.schema.collections import access_rules

__all__ = ["SUBJECTS", "Lock", "Subjects"]

SUBJECTS = tuple(column for table in METADATA.sorted_tables for column in table.columns if "subject" in column.info)
"""All columns that have subjects in them."""
ONLY = {
    access_rules.c.principal: access_rules.c.principal_type == "identity",
    clients.c.name: clients.c.role.is_not(None),
}
"""Where only some rows have one."""


class Lock(NamedTuple):
    """A subject of which nobody can say whose it is.

    :param was: as it was called before that was asked
    """

    subject: str
    was: str
    reason: str
    at: float


class Subjects:
    """What is whose."""

    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection

    async def locks(self, name: str | None = None) -> list[Lock]:
        """Those that are locked, by name; or the one that is, or was, called so."""
        chosen = select(locks).order_by(locks.c.was)
        chosen = chosen if name is None else chosen.where(or_(locks.c.subject == name, locks.c.was == name))
        return [Lock(*row) for row in await self._connection.execute(chosen)]

    async def unlock(self, lock: Lock) -> None:
        """Let it count again."""
        await self._connection.execute(delete(locks).where(locks.c.subject == lock.subject))

    async def keep_locked(self, lock: Lock, reason: str) -> None:
        """Lock it for another reason."""
        await self._connection.execute(update(locks).where(locks.c.subject == lock.subject).values(reason=reason))

    async def give(self, old: str, new: str) -> int:
        """Call what is of one subject by the other, but for rows that the other has, too; how many these are."""
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
        """Of two UUIDs the older one stays; rules that name the other name the subject."""
        both = select(identities).where(identities.c.subject.in_((old, new)))
        rows = (await self._connection.execute(both.order_by(identities.c.first_seen, identities.c.subject))).all()
        for row in rows[1:]:
            same = _same(access_rules, "principal", ("collection_id", "principal_type", "path"), new)
            by_id = (access_rules.c.principal == row.id, access_rules.c.principal_type == "identity", ~same)
            await self._connection.execute(update(access_rules).where(*by_id).values(principal=new))
            await self._connection.execute(delete(identities).where(identities.c.id == row.id))


def _keys(table: Table, name: str) -> Iterable[tuple[str, ...]]:
    """What else is in each key of a table that a column is in."""
    keys = [table.primary_key, *(each for each in table.constraints if isinstance(each, UniqueConstraint))]
    found = [tuple(column.name for column in key.columns) for key in keys]
    return [tuple(each for each in key if each != name) for key in found if name in key]


def _same(table: Table, name: str, key: tuple[str, ...], value: str) -> ColumnElement[bool]:
    """Whether there is a row with this value that is the same in the rest of the key."""
    other = table.alias("other")
    alike = (other.c[each].is_not_distinct_from(table.c[each]) for each in key)
    return select(other).where(other.c[name] == value, *alike).correlate(table).exists()
