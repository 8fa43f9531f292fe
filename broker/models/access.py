"""Roles, and the tokens that carry them."""

from typing import Annotated, Literal

from pydantic import AfterValidator, Field, StringConstraints

from broker.models.base import Moment, Wire
from broker.models.names import SinkName
from broker.models.subjects import CALLED, LONGEST, refusal

__all__ = [
    "ROLES",
    "Aside",
    "AuditEntry",
    "Caller",
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
"""Each role includes those before it. Rights: query; report transfers and bad replicas; change the catalogue; all."""

Subject = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_.@:/+%~-]*$", min_length=1, max_length=LONGEST)]


def _issuable(subject: str) -> str:
    if why := refusal(subject):
        raise ValueError(f"{subject} {why}: choose another name")
    return subject


Issuable = Annotated[str, StringConstraints(pattern=rf"^{CALLED.pattern}$"), AfterValidator(_issuable)]
"""A subject to which an admin may issue tokens, or as which a client may act."""


class Caller(Wire):
    """The sender of a request; `site` is the default destination of their transfers."""

    subject: str
    role: Role
    site: SinkName = ""

    def may(self, role: Role) -> bool:
        """Return whether the caller's role includes this one."""
        return ROLES.index(self.role) >= ROLES.index(role)

    @property
    def scope(self) -> str | None:
        """The subject whose activity the caller sees with names and errors; None for admins, who see everybody's."""
        return None if self.may("admin") else self.subject


def lesser(role: Role, most: Role) -> Role:
    """Return the role, or `most` if that may do less.

    >>> lesser("admin", "curator"), lesser("reader", "curator")
    ('curator', 'reader')
    """
    return min(role, most, key=ROLES.index)


class NewToken(Wire):
    """A token to be issued; it is valid for `days`, or for ever if `days` is not given."""

    subject: Issuable
    role: Role = "reader"
    site: SinkName = ""
    days: Annotated[float, Field(gt=0, le=3660)] | None = None


class TokenRecord(Wire):
    """The record of an issued token or of a browser login; it never contains the token."""

    id: int
    kind: Literal["token", "login"]
    subject: str
    role: Role
    site: str
    created_at: Moment
    expires_at: Moment | None
    revoked_at: Moment | None
    issuer_id: int | None = Field(description="the token with which an admin issued it, if known")


class IssuedToken(TokenRecord):
    """A new token, with its secret, which is shown only this once."""

    token: str


class Aside(Wire):
    """A subject whose reports are set aside, since when, and by which admin."""

    subject: Subject
    at: Moment
    by: str


class AuditEntry(Wire):
    """A change: when it was made, by which subject, and what it changed."""

    id: int
    at: Moment
    subject: str
    action: str
    thing: str
