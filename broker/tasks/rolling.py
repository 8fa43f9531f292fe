"""Keeps the sums of traffic up with what is reported."""

from broker.storage.database import Database, retried
from broker.storage.traffic import Traffic

__all__ = ["Rolling"]


class Rolling:
    """Counts what was not yet. As many processes as like may: each takes pairs that no other has."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def step(self) -> bool:
        """Count some; whether there was something to count."""
        async with self._database.read() as connection:  # which keeps nobody from writing
            if not await Traffic(connection).lacks():
                return False
        return await self._roll()

    @retried
    async def _roll(self) -> bool:
        async with self._database.write() as connection:
            return await Traffic(connection).roll() > 0
