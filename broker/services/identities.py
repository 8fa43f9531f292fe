"""Who was seen here, for programs that ask by UUID or by user name."""

import time
from collections.abc import Sequence
from uuid import UUID

from broker.models.identities import Identity, identity, subjects
from broker.storage.database import Database, retried
from broker.storage.identities import Identities as Stored

__all__ = ["Identities"]


class Identities:
    """Subjects that have been seen."""

    def __init__(self, database: Database, domain: str) -> None:
        self._database = database
        self.domain = domain

    @retried
    async def seen(self, subject: str, name: str | None = None, email: str | None = None) -> None:
        """Somebody was here."""
        async with self._database.write() as connection:
            await Stored(connection).seen(subject, time.time(), name, email)

    async def by_id(self, numbers: Sequence[UUID]) -> list[Identity]:
        """Those of these that are known."""
        async with self._database.read() as connection:
            return await Stored(connection).by_id(numbers)

    async def by_username(self, usernames: Sequence[str]) -> list[Identity]:
        """Those of these that are known."""
        wanted = [subject for each in usernames for subject in subjects(each, self.domain)]
        async with self._database.read() as connection:
            return await Stored(connection).by_subject(wanted)

    async def of(self, subject: str) -> Identity:
        """This one, whether it is known or not."""
        async with self._database.read() as connection:
            found = await Stored(connection).by_subject([subject])
        now = time.time()
        return found[0] if found else Identity(identity(subject), subject, None, None, now, now)
