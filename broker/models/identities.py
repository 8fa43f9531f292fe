"""Who people are to programs that know Globus: a UUID and a user name, made of the subject that a token names."""

from typing import NamedTuple
from uuid import UUID, uuid5

__all__ = ["Identity", "identity", "named", "number", "subjects", "username"]

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
    """The subject's UUID: the same at all times, in all brokers.

    >>> identity("ann") == identity("ann")
    True
    """
    return uuid5(NAMESPACE, subject)


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
    """Whom a rule means: a subject, or its UUID.

    >>> named("ann") == named(str(identity("ann")).upper()) == identity("ann")
    True
    """
    return number(principal) or identity(principal)


def username(subject: str, domain: str) -> str:
    """The subject as a user name, which has a domain; ours where it has none.

    >>> username("ann", "broker.example"), username("bob@iam.example", "broker.example")
    ('ann@broker.example', 'bob@iam.example')
    """
    return subject if "@" in subject else f"{subject}@{domain}"


def subjects(username: str, domain: str) -> tuple[str, ...]:
    """Of whom this may be the user name.

    >>> subjects("ann@broker.example", "broker.example"), subjects("bob@iam.example", "broker.example")
    (('ann@broker.example', 'ann'), ('bob@iam.example',))
    """
    local, _, host = username.rpartition("@")
    return (username, local) if host == domain and local else (username,)
