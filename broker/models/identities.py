"""Identities of subjects for Globus clients: a UUID and a user name."""

from collections.abc import Callable
from typing import NamedTuple
from uuid import UUID, uuid5

__all__ = ["Identity", "identity", "named", "next_id", "number"]

NAMESPACE = UUID("6f0b42b6-4c3e-5d0f-9d35-7d0b7c1f1a52")
"""Namespace of the UUIDs. Never change it: the UUIDs identify the owners of tasks."""


class Identity(NamedTuple):
    """A subject with its UUID; times are seconds since the epoch."""

    id: UUID
    subject: str
    name: str | None
    email: str | None
    first_seen: float
    last_seen: float


def identity(subject: str) -> UUID:
    """Return the default UUID of a new subject; `next_id` gives another one if it is taken.

    >>> identity("ann") == identity("ann")
    True
    """
    return uuid5(NAMESPACE, subject)


def next_id(subject: str, first: UUID, taken: Callable[[UUID], bool]) -> UUID:
    """Return the first free UUID for a subject, from `first` on.

    `first` may be taken: a renamed subject keeps its UUID, which is the default of its old name.

    >>> one = identity("ann")
    >>> next_id("ann", one, lambda number: False) == one != next_id("ann", one, {one}.__contains__)
    True
    """
    found = first
    while taken(found):
        found = uuid5(found, subject)
    return found


def number(principal: str) -> UUID | None:
    """Return a principal as a UUID, if it is one in any spelling; None for a subject.

    >>> number("6F0B42B6-4C3E-5D0F-9D35-7D0B7C1F1A52") == NAMESPACE, number("ann")
    (True, None)
    """
    try:
        return UUID(principal)
    except ValueError:
        return None


def named(principal: str) -> UUID:
    """Return the UUID of a principal that the broker has not seen yet: a subject, or a UUID.

    >>> named("ann") == named(str(identity("ann")).upper()) == identity("ann")
    True
    """
    return number(principal) or identity(principal)
