"""Tokens and the audit log."""

from sqlalchemy import Column, Index, Table, Text

from broker.schema.base import ID, METADATA, MOMENT

__all__ = ["audit", "tokens"]

tokens = Table(
    "tokens",
    METADATA,
    Column("id", ID, primary_key=True),
    Column("hash", Text, nullable=False, unique=True),  # sha256: tokens are random, and long enough for it
    Column("subject", Text, nullable=False),
    Column("role", Text, nullable=False),
    Column("site", Text, nullable=False),
    Column("created_at", MOMENT, nullable=False),
    Column("expires_at", MOMENT),
    Column("revoked_at", MOMENT),
)

audit = Table(
    "audit",
    METADATA,
    Column("id", ID, primary_key=True),
    Column("at", MOMENT, nullable=False),
    Column("subject", Text, nullable=False),
    Column("action", Text, nullable=False),
    Column("thing", Text, nullable=False),
    Index(None, "at"),
)
