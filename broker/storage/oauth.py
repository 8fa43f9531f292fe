"""OAuth clients, and the broker's own keys, in the database."""

from typing import Any, NamedTuple

from sqlalchemy import delete, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from broker.models.oauth import Client
from broker.schema.access import clients, keys

__all__ = ["ClientStore", "KeyStore", "SigningKey"]


class ClientStore:
    """OAuth clients, by their ids."""

    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection

    async def add(self, client: Client, hashed: str | None) -> None:
        """Add a client with the hash of its secret."""
        values = {name: value for name, value in client._asdict().items() if name != "public"}
        await self._connection.execute(clients.insert().values({**values, "hash": hashed}))

    async def get(self, number: str) -> tuple[Client, str | None] | None:
        """Return a client and the hash of its secret; None if it was revoked."""
        query = select(clients).where(clients.c.id == number, clients.c.revoked_at.is_(None))
        row = (await self._connection.execute(query)).one_or_none()
        return row and (_client(row), row.hash)

    async def made(self) -> list[Client]:
        """Return the clients that admins created, by name."""
        query = select(clients).where(clients.c.made_by.is_not(None), clients.c.revoked_at.is_(None))
        rows = await self._connection.execute(query.order_by(clients.c.name, clients.c.created_at))
        return [_client(row) for row in rows]

    async def used(self, number: str, now: float) -> bool:
        """Mark a client as used now, which locks it until the transaction ends; return whether it is valid."""
        mine = update(clients).where(clients.c.id == number, clients.c.revoked_at.is_(None)).values(used_at=now)
        return bool((await self._connection.execute(mine)).rowcount)

    async def revoke(self, number: str, now: float) -> bool:
        """Revoke a client; return whether it was valid."""
        ended = update(clients).where(clients.c.id == number, clients.c.revoked_at.is_(None)).values(revoked_at=now)
        return bool((await self._connection.execute(ended)).rowcount)

    async def forget(self, before: float) -> None:
        """Delete clients that registered themselves before a time, and were never used."""
        await self._connection.execute(
            delete(clients).where(
                clients.c.made_by.is_(None), clients.c.used_at.is_(None), clients.c.created_at < before
            )
        )


def _client(row: Any) -> Client:
    return Client(row.id, row.name, row.hash is None, row.role, row.made_by, row.created_at)


class SigningKey(NamedTuple):
    """A signing key; `private` is in PEM format."""

    id: str
    private: str
    created_at: float


class KeyStore:
    """Current and former signing keys."""

    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection

    async def all(self) -> list[SigningKey]:
        """Return all keys, the newest first."""
        rows = await self._connection.execute(select(keys).order_by(keys.c.created_at.desc(), keys.c.id))
        return [SigningKey(**row._mapping) for row in rows]

    async def add(self, key: SigningKey) -> None:
        """Add a key."""
        await self._connection.execute(keys.insert().values(key._asdict()))

    async def forget(self, before: float) -> None:
        """Delete keys that were created before a time."""
        await self._connection.execute(delete(keys).where(keys.c.created_at < before))
