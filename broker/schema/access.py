"""Tokens, the clients to which some were given, who people are, keys that sign, and the audit log."""

from sqlalchemy import Boolean, Column, ForeignKey, Index, Table, Text

from broker.schema.base import HELD, ID, METADATA, MOMENT, TOLD

__all__ = ["audit", "clients", "codes", "former_hosts", "identities", "keys", "locks", "tokens"]

clients = Table(
    "clients",
    METADATA,
    Column("id", Text, primary_key=True),  # a UUID
    Column("name", Text, nullable=False, info=HELD),  # a subject, where it has a role
    Column("hash", Text),  # of its secret; NULL: it cannot keep one
    Column("role", Text),  # what it may do for itself; NULL: nothing, people log in with it
    Column("made_by", Text, info=TOLD),  # NULL: it registered itself
    Column("created_at", MOMENT, nullable=False),
    Column("used_at", MOMENT),
    Column("revoked_at", MOMENT),
)
"""Programs that are given tokens (OAuth2)."""

tokens = Table(
    "tokens",
    METADATA,
    Column("id", ID, primary_key=True),
    Column("hash", Text, nullable=False, unique=True),  # sha256: tokens are random, and long enough for it
    Column("subject", Text, nullable=False, info=HELD),
    Column("role", Text, nullable=False),
    Column("site", Text, nullable=False),
    Column("created_at", MOMENT, nullable=False),
    Column("expires_at", MOMENT),
    Column("revoked_at", MOMENT),
    Column("kind", Text, nullable=False, server_default="token"),
    Column("parent_id", ForeignKey("tokens.id", ondelete="SET NULL")),
    Column("client_id", ForeignKey(clients.c.id, ondelete="CASCADE")),
    Column("server", Text),  # for whom it is good; NULL: for all of the broker
    Column("scopes", Text),
    Column("login_at", MOMENT),
    Column("limit_at", MOMENT),  # nothing that comes of it may last longer
    Column("issuer_id", ID),  # the token with which an admin issued it: such are never removed
    Index(None, "parent_id"),
    Index(None, "issuer_id"),
    Index(None, "expires_at"),
)
"""What admins issue (`token`), and what comes of it when somebody logs in: the browser's `login`, a `code` for each
program, then `refresh` and `access`. Each knows what it came from: who revokes one revokes all that came of it.
"""

codes = Table(
    "codes",
    METADATA,
    Column("token_id", ForeignKey(tokens.c.id, ondelete="CASCADE"), primary_key=True),
    Column("redirect_uri", Text, nullable=False),
    Column("challenge", Text),
    Column("nonce", Text),
    Column("offline", Boolean, nullable=False),
)
"""What a token of kind `code` is bound to."""

identities = Table(
    "identities",
    METADATA,
    Column("id", Text, primary_key=True),  # a UUID, for good: a subject may be renamed
    Column("subject", Text, nullable=False, unique=True, info=HELD),
    Column("name", Text),
    Column("email", Text),
    Column("first_seen", MOMENT, nullable=False),
    Column("last_seen", MOMENT, nullable=False),
)

locks = Table(
    "locks",
    METADATA,
    Column("subject", Text, primary_key=True),
    Column("was", Text, nullable=False, unique=True),  # as it was called: reserved ones had to be renamed
    Column("reason", Text, nullable=False),
    Column("at", MOMENT, nullable=False),
)
"""Subjects of which nobody can say whose they are, until an admin does: nothing counts that is theirs."""

former_hosts = Table(
    "former_hosts",
    METADATA,
    Column("host", Text, primary_key=True),
    Column("issuer", Text, nullable=False),
)
"""Where people were called SUB@HOST by one issuer alone, before subjects had the whole of it: their UUIDs are made of
that, also of those who have left nothing here but the UUID in somebody's rule.
"""

keys = Table(
    "keys",
    METADATA,
    Column("id", Text, primary_key=True),
    Column("private", Text, nullable=False),  # PEM
    Column("created_at", MOMENT, nullable=False),
)
"""What the broker signs with, the newest; the others are shown so that what they signed can still be verified."""

audit = Table(
    "audit",
    METADATA,
    Column("id", ID, primary_key=True),
    Column("at", MOMENT, nullable=False),
    Column("subject", Text, nullable=False, info=TOLD),
    Column("action", Text, nullable=False),
    Column("thing", Text, nullable=False),
    Index(None, "at"),
)
