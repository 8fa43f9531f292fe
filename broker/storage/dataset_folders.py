"""Datasets as files in directories: a directory is a common prefix of names up to a slash.

A recursive query lists a directory: each step finds, by the index, the first name after the previous entry. So the time
depends on the number of entries, and not on the number of datasets below them.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, and_, case, func, literal, or_, select
from sqlalchemy.ext.asyncio import AsyncConnection

from broker.models.names import Parts
from broker.schema.catalogue import datasets

__all__ = ["Child", "Folders"]

AFTER_SLASH = "0"
"""The character after the slash: as a suffix, a bound above all names in a directory; no component begins lower."""
LEAST = "!"
"""A character smaller than all characters of names: a name with this suffix sorts directly after the name."""
LAST = "\U0010ffff"


class Child(NamedTuple):
    """An entry of a directory: another directory, or a dataset with its size and creation time."""

    name: str
    folder: bool
    size: int | None = None
    created_at: float = 0.0

    @property
    def key(self) -> str:
        """The sort key of the entry: a directory sorts like the names inside it."""
        return self.name + "/" if self.folder else self.name


class Folders:
    """Directories of datasets, in the database."""

    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection
        self._find: Any = func.instr if connection.dialect.name == "sqlite" else func.strpos

    async def scopes(self) -> list[str]:
        """Return all scopes that have datasets."""
        first = select(func.min(datasets.c.scope).label("scope")).where(datasets.c.scope > "").cte(recursive=True)
        leap = select(func.min(datasets.c.scope)).where(datasets.c.scope > first.c.scope).scalar_subquery()
        every = first.union_all(select(leap).where(first.c.scope.is_not(None)))
        rows = await self._connection.execute(select(every.c.scope).where(every.c.scope.is_not(None)))
        return sorted(rows.scalars())

    async def children(self, scope: str, beginning: str, after: str, limit: int) -> list[Child]:
        """Return the entries of a directory in the order of their keys, after the key `after`.

        :param beginning: prefix of all names in the directory, with a slash at its end; empty for a scope's root
        """
        inside = and_(datasets.c.scope == scope, datasets.c.name < beginning + LAST)
        skipped = after + LEAST if after and not after.endswith("/") else after[:-1] + AFTER_SLASH
        first = (
            select(func.min(datasets.c.name).label("name"), literal(1).label("place"))
            .where(inside, datasets.c.name >= beginning + skipped)
            .cte(recursive=True)
        )
        leap = select(func.min(datasets.c.name)).where(inside, datasets.c.name >= self._next(first.c.name, beginning))
        every = first.union_all(
            select(leap.scalar_subquery(), first.c.place + 1).where(first.c.name.is_not(None), first.c.place < limit)
        )
        found = select(every.c.name, datasets.c.size, datasets.c.created_at).join(
            datasets, and_(datasets.c.scope == scope, datasets.c.name == every.c.name)
        )
        rows = await self._connection.execute(found.order_by(every.c.place))
        return [_child(row.name[len(beginning) :], row.size, row.created_at) for row in rows]

    def _next(self, name: ColumnElement[str], beginning: str) -> ColumnElement[str]:
        """Return the lower bound of the next entry: after the subdirectory of a name, or after the name itself."""
        rest = func.substr(name, len(beginning) + 1)
        slash = self._find(rest, "/")
        folder = func.substr(name, 1, len(beginning) + slash - 1)
        return case((slash > 0, folder.concat(AFTER_SLASH)), else_=name.concat(LEAST))

    async def dataset(self, names: Sequence[Parts]) -> tuple[Parts, Child] | None:
        """Return the first of these names that is a dataset, with its entry; None if none is."""
        any_of = or_(*(and_(datasets.c.scope == scope, datasets.c.name == name) for scope, name in names))
        columns = (datasets.c.scope, datasets.c.name, datasets.c.size, datasets.c.created_at)
        rows = await self._connection.execute(select(*columns).where(any_of))
        found = {Parts(scope, name): Child(name, False, size, created) for scope, name, size, created in rows}
        return next(((name, found[name]) for name in names if name in found), None)


def _child(rest: str, size: int | None, created_at: float) -> Child:
    name, slash, _ = rest.partition("/")
    return Child(name, True) if slash else Child(name, False, size, created_at)
