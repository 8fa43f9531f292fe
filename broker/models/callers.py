"""Roles, and the tokens that carry them."""

from typing import Annotated, Literal

from pydantic import AfterValidator, Field, StringConstraints

from broker.models.base import Moment, Wire
from broker.models.names import SinkName
from broker.models.subjects import CALLED, LONGEST, refusal

__all__ = [
    "ROLES",
    "AuditEntry",
    "Caller",
    "IgnoredSubject",
    "Issuable",
    "IssuedToken",
    "NewToken",
    "Role",
    "Subject",
    "TokenRecord",
    "lesser",
]

Role = Literal["reader", "transfer", "curator", "admin"]
ROLES: tuple[Role, ...] = ("reader", "transfer", "curator", "admin")
"""All roles; each includes the rights of those before it.

- reader: query
- transfer: report transfers and bad replicas, submit tasks
- curator: change the catalogue
- admin: everything"""

Subject = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_.@:/+%~-]*$", min_length=1, max_length=LONGEST)]


def _issuable(subject: str) -> str:
    if why := refusal(subject):
        raise ValueError(f"{subject} {why}: choose another name")
    return subject


Issuable = Annotated[str, StringConstraints(pattern=rf"^{CALLED.pattern}$"), AfterValidator(_issuable)]
"""A subject that may get a token from an admin, or be the name of a client."""


class Caller(Wire):
    """The sender of a request; `site` is the default destination of their transfers."""

    subject: str
    role: Role
    site: SinkName = ""

    def may(self, role: Role) -> bool:
        """Return whether the caller's role includes `role`."""
        return ROLES.index(self.role) >= ROLES.index(role)

    @property
    def scope(self) -> str | None:
        """The subject whose activity the caller sees in full; None for admins, who see everybody's."""
        return None if self.may("admin") else self.subject


def lesser(role: Role, most: Role) -> Role:
    """Return the lower of two roles.

    >>> lesser("admin", "curator"), lesser("reader", "curator")
    ('curator', 'reader')
    """
    return min(role, most, key=ROLES.index)


class NewToken(Wire):
    """A token to issue, valid for `days`; without `days`, it never expires."""

    subject: Issuable
    role: Role = "reader"
    site: SinkName = ""
    days: Annotated[float, Field(gt=0, le=3660)] | None = None


class TokenRecord(Wire):
    """The record of an issued token or a browser login, without the secret."""

    id: int
    kind: Literal["token", "login"]
    subject: str
    role: Role
    site: str
    created_at: Moment
    expires_at: Moment | None
    revoked_at: Moment | None
    issuer_id: int | None = Field(description="number of the token with which an admin issued this token, if known")


class IssuedToken(TokenRecord):
    """A new token with its secret, which is shown only once."""

    token: str


class IgnoredSubject(Wire):
    """A subject whose reports are ignored, with the time of this decision and the admin who made it."""

    subject: Subject
    at: Moment
    by: str


class AuditEntry(Wire):
    """A change: its time, the subject that made it, the action, and the changed object."""

    id: int
    at: Moment
    subject: str
    action: str
    thing: str
