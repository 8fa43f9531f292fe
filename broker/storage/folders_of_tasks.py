"""The directories and files that a task reads or writes, identified by servers' ids, since each may have many paths."""

from collections.abc import Collection
from typing import Literal, NamedTuple

from sqlalchemy import Text, literal, select
from sqlalchemy.ext.asyncio import AsyncConnection

from broker.models.work import restored, storable
from broker.schema.tasks import touched
from broker.storage.dialects import ALWAYS, insert, tabled

__all__ = ["Role", "Touch", "Touched"]

Role = Literal["source", "above", "destination", "aim"]
"""The roles of a directory in a task.

- "source": files are copied from it
- "above": it is a parent of an item
- "destination": files are copied to it
- "aim": it is the destination of an item"""


class Touch(NamedTuple):
    """A directory or file that a task reads or writes.

    :param token: server's id of the directory or file
    """

    role: Role
    token: str
    path: str


class Touched:
    """Directories and files that tasks read and write."""

    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection

    async def add(self, task: str, found: Collection[Touch]) -> None:
        """Store directories and files that a task reads or writes; existing entries are unchanged."""
        if not found:
            return
        columns = dict.fromkeys(Touch._fields, Text())
        given = tabled(
            self._connection, sorted({touch._replace(path=storable(touch.path)) for touch in found}), columns
        )
        rows = select(literal(task), *given.c).where(ALWAYS)
        added = insert(self._connection, touched).from_select(["task_id", *columns], rows)
        await self._connection.execute(added.on_conflict_do_nothing())

    async def of(self, task: str, tokens: Collection[str], *roles: Role) -> set[str]:
        """Return the tokens that a task has in one of these roles."""
        if not tokens:
            return set()
        given = tabled(self._connection, [(token,) for token in sorted(set(tokens))], {"token": Text()})
        query = select(touched.c.token).where(
            touched.c.task_id == task, touched.c.role.in_(roles), touched.c.token.in_(select(given.c.token))
        )
        return set((await self._connection.execute(query)).scalars())

    async def paths(self, task: str, token: str, role: Role) -> set[str]:
        """Return the paths that a task uses for a directory or file in a role."""
        query = select(touched.c.path).where(
            touched.c.task_id == task, touched.c.role == role, touched.c.token == token
        )
        return set(map(restored, (await self._connection.execute(query)).scalars()))
