"""Keeps the sums of traffic up to date with reported transfers."""

from broker.storage.database import Database, retried
from broker.storage.traffic import TrafficStore

__all__ = ["Rolling"]


class Rolling:
    """Addition of new transfers to the sums. Any number of processes may do it: each takes pairs that no other has."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def step(self) -> bool:
        """Count some transfers; return whether there were any to count."""
        async with self._database.read() as connection:  # a read, which blocks no writer
            if not await TrafficStore(connection).lacks():
                return False
        return await self._roll()

    @retried
    async def _roll(self) -> bool:
        async with self._database.write() as connection:
            return await TrafficStore(connection).roll() > 0
