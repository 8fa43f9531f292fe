"""The broker's own keys, in the database."""

from typing import NamedTuple

from sqlalchemy import delete, select
from sqlalchemy.ext.asyncio import AsyncConnection

from broker.schema.access import keys

__all__ = ["KeyStore", "SigningKey"]


class SigningKey(NamedTuple):
    """A private key, in PEM format."""

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
        """Delete keys that were made before this time."""
        await self._connection.execute(delete(keys).where(keys.c.created_at < before))
