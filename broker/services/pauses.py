"""What admins have paused at collections."""

import time
from collections.abc import Iterable, Sequence
from uuid import UUID

from broker.errors import NotFound, Paused
from broker.models.access import Caller
from broker.models.collections import Collection, PauseRule
from broker.storage.access import Records
from broker.storage.collections import Collections as Stored
from broker.storage.database import Database, retried

__all__ = ["Pauses"]


class Pauses:
    """Pause rules."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def all(self, collections: Iterable[UUID], subject: str | None = None) -> list[PauseRule]:
        """Those of these collections; only those that bind this subject, if one is given."""
        async with self._database.read() as connection:
            return await Stored(connection).pauses([str(number) for number in collections], subject)

    async def check(self, caller: Caller, collection: Collection, operation: str) -> None:
        """:raises Paused: when this operation of `models.collections.PAUSABLE` is paused for the caller"""
        for rule in await self.all([collection.id], caller.subject):
            if operation in rule.operations:
                raise Paused(f"{collection.name} is paused: {rule.message}", "try again later")

    async def one(self, collections: Sequence[UUID], number: UUID) -> PauseRule:
        """:raises NotFound:"""
        for each in await self.all(collections):
            if each.id == number:
                return each
        raise _none(number)

    @retried
    async def put(self, by: str, rule: PauseRule) -> PauseRule:
        """Make it, or change that of this id."""
        async with self._database.write() as connection:
            await Stored(connection).put_pause(rule)
            note = f"{rule.collection_id}: {' '.join(rule.operations)}"
            await Records(connection).note(time.time(), by, "put pause rule", note)
        return rule

    @retried
    async def remove(self, by: str, number: UUID) -> None:
        """:raises NotFound:"""
        async with self._database.write() as connection:
            if not await Stored(connection).remove_pause(str(number)):
                raise _none(number)
            await Records(connection).note(time.time(), by, "remove pause rule", str(number))


def _none(number: UUID) -> NotFound:
    return NotFound(f"there is no pause rule {number}", "see the list of pause rules")
