"""Links by their numbers."""

from collections.abc import Collection

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncConnection

from broker.models.history import Pair
from broker.schema.base import ID
from broker.schema.history import pairs
from broker.storage.tabled import tabled

__all__ = ["named"]


async def named(connection: AsyncConnection, numbers: Collection[int]) -> dict[int, Pair]:
    """Return the links with these numbers."""
    given = tabled(connection, [(number,) for number in numbers], {"id": ID})
    asked = select(pairs.c.id, pairs.c.source, pairs.c.sink, pairs.c.direction).join(given, given.c.id == pairs.c.id)
    return {number: Pair(*names) for number, *names in await connection.execute(asked)}
