"""Programs that are given tokens, in the database."""

from typing import Any

from sqlalchemy import delete, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from broker.models.oauth import Client
from broker.schema.access import clients

__all__ = ["Clients"]


class Clients:
    """Programs, by their ids."""

    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection

    async def add(self, client: Client, hashed: str | None) -> None:
        """A new one, of whose secret only the hash is kept."""
        values = {name: value for name, value in client._asdict().items() if name != "public"}
        await self._connection.execute(clients.insert().values({**values, "hash": hashed}))

    async def get(self, number: str) -> tuple[Client, str | None] | None:
        """One that was not revoked, and the hash of its secret."""
        asked = select(clients).where(clients.c.id == number, clients.c.revoked_at.is_(None))
        row = (await self._connection.execute(asked)).one_or_none()
        return row and (_client(row), row.hash)

    async def made(self) -> list[Client]:
        """Those that an admin made, by name."""
        asked = select(clients).where(clients.c.made_by.is_not(None), clients.c.revoked_at.is_(None))
        rows = await self._connection.execute(asked.order_by(clients.c.name, clients.c.created_at))
        return [_client(row) for row in rows]

    async def used(self, number: str, now: float) -> bool:
        """It is given something now; whether it may be: until the transaction ends nobody revokes it."""
        mine = update(clients).where(clients.c.id == number, clients.c.revoked_at.is_(None)).values(used_at=now)
        return bool((await self._connection.execute(mine)).rowcount)

    async def revoke(self, number: str, now: float) -> bool:
        """End one; whether there was such a one."""
        ended = update(clients).where(clients.c.id == number, clients.c.revoked_at.is_(None)).values(revoked_at=now)
        return bool((await self._connection.execute(ended)).rowcount)

    async def forget(self, before: float) -> None:
        """Remove those that registered themselves before, and with which nobody ever logged in."""
        await self._connection.execute(
            delete(clients).where(
                clients.c.made_by.is_(None), clients.c.used_at.is_(None), clients.c.created_at < before
            )
        )


def _client(row: Any) -> Client:
    return Client(row.id, row.name, row.hash is None, row.role, row.made_by, row.created_at)
