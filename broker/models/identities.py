"""Who people are to programs that know Globus: a UUID and a user name."""

from collections.abc import Callable
from typing import NamedTuple
from uuid import UUID, uuid5

__all__ = ["Identity", "identity", "named", "next_id", "number"]

NAMESPACE = UUID("6f0b42b6-4c3e-5d0f-9d35-7d0b7c1f1a52")
"""Never to be changed: tasks are owned by what is made with it."""


class Identity(NamedTuple):
    """A subject, as programs see it; moments are seconds since the epoch."""

    id: UUID
    subject: str
    name: str | None
    email: str | None
    first_seen: float
    last_seen: float


def identity(subject: str) -> UUID:
    """The UUID that a subject has from the first time that it is seen, unless that is somebody else's by then.

    >>> identity("ann") == identity("ann")
    True
    """
    return uuid5(NAMESPACE, subject)


def next_id(subject: str, first: UUID, taken: Callable[[UUID], bool]) -> UUID:
    """The first UUID for a subject that nobody has: who was called so before kept theirs when they were renamed.

    >>> one = identity("ann")
    >>> next_id("ann", one, lambda number: False) == one != next_id("ann", one, {one}.__contains__)
    True
    """
    found = first
    while taken(found):
        found = uuid5(found, subject)
    return found


def number(principal: str) -> UUID | None:
    """The UUID that somebody is called by, however it is written; None for a subject.

    >>> number("6F0B42B6-4C3E-5D0F-9D35-7D0B7C1F1A52") == NAMESPACE, number("ann")
    (True, None)
    """
    try:
        return UUID(principal)
    except ValueError:
        return None


def named(principal: str) -> UUID:
    """Whom a rule means who was not seen yet: a subject, or its UUID.

    >>> named("ann") == named(str(identity("ann")).upper()) == identity("ann")
    True
    """
    return number(principal) or identity(principal)
