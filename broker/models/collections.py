"""Collections (directories of GridFTP servers or workers, or the catalogue) and their access rules."""

from typing import Annotated, Literal, Self
from uuid import UUID

from pydantic import AfterValidator, Field, StringConstraints, field_validator, model_validator

from broker.models.base import Moment, Wire
from broker.models.callers import ROLES, Subject
from broker.models.names import Named, Remark, ReplicaPath, SinkName

__all__ = [
    "PAUSABLE",
    "AccessRule",
    "Bookmark",
    "Collection",
    "NewCollection",
    "NewRule",
    "NewTitle",
    "PauseRule",
    "Permissions",
    "PrincipalType",
    "SharedFolder",
    "Title",
    "UsableCollection",
    "is_id",
]

Kind = Literal["gridftp", "local", "catalogue"]
PrincipalType = Literal["identity", "role", "all_authenticated_users", "anonymous"]
Permissions = Literal["r", "rw"]


def _no_id(name: str) -> str:
    """Refuse a name that could be taken for the id of another collection."""
    if is_id(name):
        raise ValueError("it looks like the id of a collection")
    return name


def is_id(word: str) -> bool:
    """Return whether a word has the form of an id.

    >>> is_id("tape at CERN"), is_id("F81D4FAE7DEC11D0A76500A0C91E6BF6")
    (False, True)
    """
    try:
        UUID(word)
    except ValueError:
        return False
    return True


Title = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9](?:[A-Za-z0-9 _.()+-]{0,126}[A-Za-z0-9_.()+-])?$")]
NewTitle = Annotated[Title, AfterValidator(_no_id)]
PAUSABLE = (
    "ls",
    "mkdir",
    "rename",
    "symlink",
    "task_delete",
    "task_transfer_read",
    "task_transfer_write",
)
"""Operations that can be paused at a collection, by their names in Globus."""


class NewCollection(Wire):
    """A collection to create or change.

    Kinds: `gridftp` is the directory `base` at an `endpoint`; `local` is the directory `base` of the workers at a
    `site`; `catalogue` shows all datasets as files, read-only.

    `credential` is the name of a credential in the workers' configuration. `concurrency` limits the number of transfers
    at once, and `rate` the bytes per second from and to the directory, for all workers and all collections of this
    directory together. `sharing` allows users to share directories as guest collections, for kind `gridftp`.
    """

    name: NewTitle
    kind: Kind = "gridftp"
    endpoint: Named | None = None
    base: ReplicaPath = "/"
    site: SinkName = ""
    description: Remark = ""
    credential: SinkName = ""
    sharing: bool = False
    concurrency: Annotated[int, Field(ge=1, le=1000)] | None = None
    rate: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None

    @field_validator("base")
    @classmethod
    def _absolute(cls, base: str) -> str:
        if not base.startswith("/"):
            raise ValueError("does not begin with a slash")
        return base.rstrip("/") + "/"

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if (self.endpoint is not None) != (self.kind == "gridftp"):
            raise ValueError("collections of kind gridftp have an endpoint, others do not")
        if self.sharing and self.kind != "gridftp":
            raise ValueError("only collections of kind gridftp can have sharing")
        return self


class SharedFolder(Wire):
    """The directory that a guest collection shares.

    `host` is the collection with the directory, `base` the host's directory, and `folder` the path in the host, with a
    slash at its end. `allowed` is whether the host still allows sharing.
    """

    host: UUID
    base: str
    folder: str
    allowed: bool


class Collection(NewCollection):
    """An existing collection. A guest collection has a `share`, and its location is that of the shared directory."""

    id: UUID
    owner: str
    created_at: Moment
    share: SharedFolder | None = None


class UsableCollection(Wire):
    """A collection as users see it: without location and credential."""

    id: UUID
    name: NewTitle
    kind: Kind
    site: SinkName
    description: Remark
    owner: str
    created_at: Moment


class NewRule(Wire):
    """A permission to read, or to read and write, below a path of a collection.

    The principal is an identity (a subject or its UUID), or the lowest role that has access. Rules for all
    authenticated users and for everybody (`anonymous`) have no principal.
    """

    principal_type: PrincipalType
    principal: Subject | Literal[""] = ""
    path: Annotated[str, StringConstraints(max_length=4096)] = "/"
    permissions: Permissions = "r"

    @model_validator(mode="after")
    def _named(self) -> Self:
        if self.principal_type == "role" and self.principal not in ROLES:
            raise ValueError(f"there is no role {self.principal}; use {', '.join(ROLES)}")
        if (self.principal_type in ("identity", "role")) != bool(self.principal):
            raise ValueError("rules for an identity or a role have a principal, others do not")
        return self


class AccessRule(NewRule):
    """An existing access rule."""

    id: UUID


class Bookmark(Wire):
    """A user's name for a path of a collection."""

    id: UUID
    name: str
    collection_id: UUID
    path: str
    pinned: bool


class PauseRule(Wire):
    """Operations that an admin has paused at a collection, for one subject or for all."""

    id: UUID
    collection_id: UUID
    subject: str | None
    message: str
    operations: tuple[str, ...]
    modified_by: str
    created_at: Moment
    modified_at: Moment
