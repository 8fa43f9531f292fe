"""Identities of subjects that have used the broker, for lookup by UUID or user name."""

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple
from uuid import UUID

from broker.errors import Conflict, Invalid, NotFound
from broker.models.identities import Identity
from broker.models.subjects import Foreign, Usernames, refusal
from broker.storage.database import Database, retried
from broker.storage.subjects import IdentityStore as Stored
from broker.storage.subjects import Lock, Subjects
from broker.storage.tokens import TokenStore

__all__ = ["Identities", "People"]

MORE = "run: coget-broker subject list"


class People(NamedTuple):
    """The UUIDs of some subjects, and the translation to user names."""

    ids: Mapping[str, UUID]
    usernames: Usernames

    def id(self, subject: str) -> str:
        """Return the UUID of one of these subjects, as text."""
        return str(self.ids[subject])

    def username(self, subject: str) -> str:
        """Return the user name of any subject."""
        return self.usernames.of(subject)


class Identities:
    """The identities of subjects, and the assignment of locked subjects."""

    def __init__(self, database: Database, usernames: Usernames) -> None:
        self._database = database
        self.usernames = usernames
        self.domain = usernames.domain

    @retried
    async def seen(self, subject: str, name: str | None = None, email: str | None = None) -> None:
        """Record that a subject was seen. :raises Forbidden: when the subject is locked"""
        async with self._database.write() as connection:
            await Stored(connection).seen(subject, time.time(), name, email)

    async def by_id(self, numbers: Sequence[UUID]) -> list[Identity]:
        """Return the known identities with these UUIDs."""
        async with self._database.read() as connection:
            return await Stored(connection).by_id(numbers)

    async def by_username(self, usernames: Sequence[str]) -> list[Identity]:
        """Return the known identities with these user names."""
        subjects = [subject for each in usernames for subject in self.usernames.subjects(each)]
        async with self._database.read() as connection:
            return await Stored(connection).by_subject(subjects)

    async def people(self, subjects: Iterable[str]) -> People:
        """Return the UUIDs and user names of these subjects, known or not."""
        async with self._database.read() as connection:
            return People(await Stored(connection).ids(set(subjects)), self.usernames)

    async def of(self, subject: str) -> Identity:
        """Return the identity of a subject, known or not."""
        async with self._database.read() as connection:
            stored, now = Stored(connection), time.time()
            for each in await stored.by_subject([subject]):
                return each
            return Identity((await stored.ids([subject]))[subject], subject, None, None, now, now)

    async def locks(self) -> list[Lock]:
        """Return the locked subjects, whose owner is unknown."""
        async with self._database.read() as connection:
            return await Subjects(connection).locks()

    @retried
    async def assign(self, by: str, old: str, new: str) -> tuple[int, bool]:
        """Move everything of a locked subject to another subject; or unlock it, if both names are the same.

        :param by: admin that assigns it
        :returns: number of rows that stay because `new` has the same rows, and whether `new` has used the broker
        :raises NotFound: when `old` is not locked
        :raises Invalid: when `new` is not a valid subject
        :raises Conflict: when `new` is locked
        """
        async with self._database.write() as connection:
            subjects = Subjects(connection)
            if not (locks := await subjects.locks(old)):
                raise NotFound(f"{old} is not locked", MORE)
            (lock,) = locks
            if Foreign.read(new) is None and (why := refusal(new)):
                raise Invalid(f"{new} {why}", "give a subject in the form of `coget-broker subject list` and whoami")
            if new != lock.subject and await subjects.locks(new):
                raise Conflict(f"{new} is locked as well", MORE)
            here = bool(await Stored(connection).by_subject([new]))
            left = await subjects.give(lock.subject, new) if new != lock.subject else 0
            if left:
                await subjects.keep_locked(lock, f"{left} rows of it stay, because {new} has the same")
            else:
                await subjects.unlock(lock)
            await TokenStore(connection).note(time.time(), by, "assign subject", f"{lock.was} to {new}")
        return left, here
