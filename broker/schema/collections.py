"""Globus collections, with their access rules, bookmarks and pause rules."""

from sqlalchemy import Boolean, Column, Double, ForeignKey, Index, Integer, Table, Text, UniqueConstraint, false

from broker.schema.base import ACTOR, HELD, METADATA, MOMENT, NAME
from broker.schema.catalogue import endpoints

__all__ = ["access_rules", "bookmarks", "collections", "credential_places", "former_folders", "pause_rules", "shares"]

collections = Table(
    "collections",
    METADATA,
    Column("id", Text, primary_key=True),  # a UUID, as Globus clients require
    Column("name", NAME, nullable=False, unique=True),
    Column("kind", Text, nullable=False),
    Column("endpoint_id", ForeignKey(endpoints.c.id)),
    Column("base", Text, nullable=False),
    Column("site", Text, nullable=False),
    Column("owner", Text, nullable=False, info=HELD),
    Column("description", Text, nullable=False),
    Column("credential", Text, nullable=False),
    Column("sharing", Boolean, nullable=False, server_default=false()),  # whether users may share its directories
    Column("concurrency", Integer),
    Column("rate", Double),
    Column("rate_until", MOMENT, nullable=False),  # time until which its `rate` is used up
    Column("created_at", MOMENT, nullable=False),
)

shares = Table(
    "shares",
    METADATA,
    Column("collection_id", ForeignKey(collections.c.id, ondelete="CASCADE"), primary_key=True),
    Column("host_id", ForeignKey(collections.c.id, ondelete="CASCADE"), nullable=False),
    Column("folder", Text, nullable=False),  # path in the host, with a slash at its end
    Index(None, "host_id"),
)
"""The shared directories of guest collections, whose rows have the kind `guest` and no location of their own.

A row of kind `guest` without a share, as a host leaves it that is deleted, is no collection.
"""

credential_places = Table(
    "credential_places",
    METADATA,
    Column("credential", Text, primary_key=True),
    Column("url", Text, primary_key=True),
)
"""Directory URLs of credentials whose entry in the workers' TOML file has no `for`.

An upgrade stored the directories of their collections, when `for` became required.
"""

former_folders = Table(
    "former_folders",
    METADATA,
    Column("collection_id", ForeignKey(collections.c.id, ondelete="CASCADE"), primary_key=True),
    Column("host", Text, primary_key=True),
    Column("folder", Text, primary_key=True),
)
"""Former directories of collections whose endpoint was moved by a non-admin; the catalogue gives no access to them."""

access_rules = Table(
    "access_rules",
    METADATA,
    Column("id", Text, primary_key=True),
    Column("collection_id", ForeignKey(collections.c.id, ondelete="CASCADE"), nullable=False),
    Column("principal_type", Text, nullable=False),
    Column("principal", Text, nullable=False, info=HELD),
    Column("path", Text, nullable=False),
    Column("permissions", Text, nullable=False),
    Column("created_at", MOMENT, nullable=False),
    UniqueConstraint("collection_id", "principal_type", "principal", "path"),
)

bookmarks = Table(
    "bookmarks",
    METADATA,
    Column("id", Text, primary_key=True),
    Column("owner", Text, nullable=False, info=HELD),
    Column("name", Text, nullable=False),
    Column("collection_id", Text, nullable=False),  # no foreign key: the collection may be deleted
    Column("path", Text, nullable=False),
    Column("pinned", Boolean, nullable=False),
    UniqueConstraint("owner", "name"),
)

pause_rules = Table(
    "pause_rules",
    METADATA,
    Column("id", Text, primary_key=True),
    Column("collection_id", ForeignKey(collections.c.id, ondelete="CASCADE"), nullable=False),
    Column("subject", Text, info=HELD),  # NULL: all users
    Column("message", Text, nullable=False),
    Column("operations", Text, nullable=False),  # names from models.collections.PAUSABLE, separated by blanks
    Column("modified_by", Text, nullable=False, info=ACTOR),
    Column("created_at", MOMENT, nullable=False),
    Column("modified_at", MOMENT, nullable=False),
    Index(None, "collection_id"),
)
