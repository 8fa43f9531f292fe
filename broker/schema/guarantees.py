"""The ledger of promised finish times, and the shares of links that are reserved for them."""

from sqlalchemy import BigInteger, Column, Double, ForeignKey, Index, Table, Text, UniqueConstraint, text

from broker.schema.base import HELD, ID, METADATA, MOMENT
from broker.schema.tasks import tasks

__all__ = ["OPEN", "guarantee_shares", "guarantees"]

OPEN = text("outcome IS NULL")
"""The condition for promises whose shares are reserved."""

guarantees = Table(
    "guarantees",
    METADATA,
    Column("id", ID, primary_key=True),  # earlier promises have precedence
    Column("owner", Text, nullable=False, info=HELD),
    Column("request_id", Text),  # chosen by the client, so that a repeated request promises nothing twice
    Column("task_id", ForeignKey(tasks.c.id, ondelete="CASCADE")),  # NULL: a transfer of a client
    Column("bytes", BigInteger, nullable=False),
    Column("bytes_left", BigInteger, nullable=False),
    Column("sink", Text, nullable=False),
    Column("server", Text, nullable=False),  # SCHEME://HOST[:PORT] of the destination; empty: a site
    Column("made_at", MOMENT, nullable=False),
    Column("deadline", MOMENT, nullable=False),
    Column("sure", Double, nullable=False),
    Column("chance", Double, nullable=False),  # probability when it was made, or refused
    Column("chance_now", Double, nullable=False),  # probability at the last look
    Column("t50", MOMENT),  # NULL: refused
    Column("t95", MOMENT),
    Column("expires_at", MOMENT),  # when the client counts as gone; NULL: a task, or refused
    Column("ended_at", MOMENT),
    Column("outcome", Text),  # NULL: open
    UniqueConstraint("owner", "request_id"),
    Index(None, "owner", "id"),
    Index(None, "task_id"),
    Index("ix_guarantees_open", "owner", sqlite_where=OPEN, postgresql_where=OPEN),
    sqlite_autoincrement=True,
)

guarantee_shares = Table(
    "guarantee_shares",
    METADATA,
    Column("guarantee_id", ForeignKey(guarantees.c.id, ondelete="CASCADE"), primary_key=True),
    Column("source", Text, primary_key=True),
    Column("rate", Double, nullable=False),  # bytes per second
    Column("since", MOMENT, nullable=False),
)
"""The shares of links from sources to the sink of a promise, each until its deadline."""
