"""Who may do what: roles, and tokens that carry them."""

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
"""Each may do all that those before it may: ask; report transfers and bad replicas; change the catalogue; all."""

Subject = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_.@:/+%~-]*$", min_length=1, max_length=LONGEST)]


def _issuable(subject: str) -> str:
    if why := refusal(subject):
        raise ValueError(f"{subject} {why}: choose another name")
    return subject


Issuable = Annotated[str, StringConstraints(pattern=rf"^{CALLED.pattern}$"), AfterValidator(_issuable)]
"""A subject to which an admin may issue tokens, or as which a client may act."""


class Caller(Wire):
    """Who asks, and from where: `site` is where their transfers go unless they say otherwise."""

    subject: str
    role: Role
    site: SinkName = ""

    def may(self, role: Role) -> bool:
        """Whether their role includes that one."""
        return ROLES.index(self.role) >= ROLES.index(role)

    @property
    def scope(self) -> str | None:
        """The subject whose doings they are shown, with names and errors; None: everybody's, which admins see."""
        return None if self.may("admin") else self.subject


def lesser(role: Role, most: Role) -> Role:
    """Return the role, or `most` if that may do less.

    >>> lesser("admin", "curator"), lesser("reader", "curator")
    ('curator', 'reader')
    """
    return min(role, most, key=ROLES.index)


class NewToken(Wire):
    """A token to be issued; it lasts `days`, for ever if none are said."""

    subject: Issuable
    role: Role = "reader"
    site: SinkName = ""
    days: Annotated[float, Field(gt=0, le=3660)] | None = None


class TokenRecord(Wire):
    """What is known of a token that was issued, or of a login with a browser; never the token."""

    id: int
    kind: Literal["token", "login"]
    subject: str
    role: Role
    site: str
    created_at: Moment
    expires_at: Moment | None
    revoked_at: Moment | None
    issuer_id: int | None = Field(description="the token with which an admin issued it, where that is known")


class IssuedToken(TokenRecord):
    """A new token: the only time that it is shown."""

    token: str


class Aside(Wire):
    """A subject whose reports count for nothing, since when, and who said so."""

    subject: Subject
    at: Moment
    by: str


class AuditEntry(Wire):
    """Who changed what, and when."""

    id: int
    at: Moment
    subject: str
    action: str
    thing: str
