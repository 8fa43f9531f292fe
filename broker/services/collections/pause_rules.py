"""Pause rules, with which admins pause operations at collections."""

import time
from collections.abc import Callable, Iterable, Sequence
from uuid import UUID

from broker.errors import NotFound, Paused
from broker.models.callers import Caller
from broker.models.collections import Collection, PauseRule
from broker.storage.collections import CollectionStore as Stored
from broker.storage.database import Database, retried
from broker.storage.tokens import TokenStore

__all__ = ["PauseRules"]


class PauseRules:
    """The pause rules of all collections.

    :param new_work: function to call when tasks may go on, with an empty name for all queues
    """

    def __init__(self, database: Database, new_work: Callable[[str], None]) -> None:
        self._database = database
        self._new_work = new_work

    async def all(self, collections: Iterable[UUID], subject: str | None = None) -> list[PauseRule]:
        """Return the pause rules of these collections; if a subject is given, only the rules that apply to it."""
        async with self._database.read() as connection:
            return await Stored(connection).pauses([str(number) for number in collections], subject)

    async def effective(self, collections: Iterable[UUID], subject: str) -> list[PauseRule]:
        """Return the pause rules that apply to a subject at these collections.

        The rules of a guest collection's host are returned as its own.
        """
        numbers = [str(number) for number in collections]
        async with self._database.read() as connection:
            stored = Stored(connection)
            hosts = await stored.hosts(numbers)
            own = await stored.pauses(numbers, subject)
            above = await stored.pauses(set(hosts.values()), subject) if hosts else []
        for guest, host in hosts.items():
            there = [rule for rule in above if str(rule.collection_id) == host]
            own += [rule.model_copy(update={"collection_id": UUID(guest)}) for rule in there]
        return own

    async def check(self, caller: Caller, collection: Collection, operation: str) -> None:
        """Check that an operation of `models.collections.PAUSABLE` is not paused. :raises Paused:"""
        for rule in await self.effective([collection.id], caller.subject):
            if operation in rule.operations:
                raise Paused(f"{collection.name} is paused: {rule.message}", "try again later")

    async def one(self, collections: Sequence[UUID], number: UUID) -> PauseRule:
        """Return a pause rule of one of these collections. :raises NotFound:"""
        for each in await self.all(collections):
            if each.id == number:
                return each
        raise _none(number)

    @retried
    async def put(self, by: str, rule: PauseRule) -> PauseRule:
        """Create a pause rule, or change the one with this id."""
        async with self._database.write() as connection:
            await Stored(connection).put_pause(rule)
            note = f"{rule.collection_id}: {' '.join(rule.operations)}"
            await TokenStore(connection).note(time.time(), by, "put pause rule", note)
        self._new_work("")  # a change may have lifted it from some operations
        return rule

    @retried
    async def remove(self, by: str, number: UUID) -> None:
        """Remove a pause rule. :raises NotFound:"""
        async with self._database.write() as connection:
            if not await Stored(connection).remove_pause(str(number)):
                raise _none(number)
            await TokenStore(connection).note(time.time(), by, "remove pause rule", str(number))
        self._new_work("")


def _none(number: UUID) -> NotFound:
    return NotFound(f"there is no pause rule {number}", "choose one from the list of pause rules")
