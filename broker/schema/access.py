"""Tokens, OAuth clients, identities of users, signing keys, and the audit log."""

from sqlalchemy import Boolean, Column, ForeignKey, Index, Table, Text

from broker.schema.base import ACTOR, HELD, ID, METADATA, MOMENT

__all__ = ["audit", "clients", "codes", "former_hosts", "identities", "keys", "locks", "tokens"]

clients = Table(
    "clients",
    METADATA,
    Column("id", Text, primary_key=True),  # a UUID
    Column("name", Text, nullable=False, info=HELD),  # equals the client's subject if it has a role
    Column("hash", Text),  # hash of its secret; NULL: it has none
    Column("role", Text),  # role of the client itself; NULL: it acts only for users
    Column("made_by", Text, info=ACTOR),  # NULL: it registered itself
    Column("created_at", MOMENT, nullable=False),
    Column("used_at", MOMENT),
    Column("revoked_at", MOMENT),
)
"""OAuth2 clients, to which tokens are issued."""

tokens = Table(
    "tokens",
    METADATA,
    Column("id", ID, primary_key=True),
    Column("hash", Text, nullable=False, unique=True),  # SHA-256 without salt, since tokens are long and random
    Column("subject", Text, nullable=False, info=HELD),
    Column("role", Text, nullable=False),
    Column("site", Text, nullable=False),
    Column("created_at", MOMENT, nullable=False),
    Column("expires_at", MOMENT),
    Column("revoked_at", MOMENT),
    Column("kind", Text, nullable=False, server_default="token"),
    Column("parent_id", ForeignKey("tokens.id", ondelete="SET NULL")),
    Column("client_id", ForeignKey(clients.c.id, ondelete="CASCADE")),
    Column("server", Text),  # resource server that accepts it; NULL: all
    Column("scopes", Text),
    Column("login_at", MOMENT),
    Column("limit_at", MOMENT),  # latest possible expiry of its descendants
    Column("successor", Text),  # refresh token that replaced this spent one, encrypted with it; marks before it
    Column("issuer_id", ID),  # token with which an admin issued this one; such tokens are never removed
    Index(None, "parent_id"),
    Index(None, "issuer_id"),
    Index(None, "expires_at"),
    sqlite_autoincrement=True,  # tasks and timers keep the numbers of deleted tokens
)
"""Tokens that admins issue (kind `token`), and the tokens of logins.

A browser's `login` is the parent of a `code` for each client, which is the parent of `refresh` and `access` tokens. A
token is revoked together with all its descendants.
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
"""The OAuth parameters that a token of kind `code` is bound to."""

identities = Table(
    "identities",
    METADATA,
    Column("id", Text, primary_key=True),  # a UUID that stays when the subject is renamed
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
    Column("was", Text, nullable=False, unique=True),  # name before the lock; reserved names were replaced
    Column("reason", Text, nullable=False),
    Column("at", MOMENT, nullable=False),
)
"""Subjects that cannot be matched to a person; their tokens are invalid until an admin assigns them."""

former_hosts = Table(
    "former_hosts",
    METADATA,
    Column("host", Text, primary_key=True),
    Column("issuer", Text, nullable=False),
)
"""Hosts with one issuer, whose users had the older subject SUB@HOST before subjects included the whole issuer.

The UUIDs of these users, some of which exist only in access rules, derive from the older subject.
"""

keys = Table(
    "keys",
    METADATA,
    Column("id", Text, primary_key=True),
    Column("private", Text, nullable=False),  # PEM
    Column("created_at", MOMENT, nullable=False),
)
"""Signing keys: the broker signs with the newest key, and publishes older keys to verify earlier signatures."""

audit = Table(
    "audit",
    METADATA,
    Column("id", ID, primary_key=True),
    Column("at", MOMENT, nullable=False),
    Column("subject", Text, nullable=False, info=ACTOR),
    Column("action", Text, nullable=False),
    Column("thing", Text, nullable=False),
    Index(None, "at"),
)
