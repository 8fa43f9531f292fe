"""Promised finish times, the shares of links that are reserved for them, and the deadlines of tasks."""

import sqlalchemy as sa
from alembic import op

revision = "0028"
down_revision = "0027"

ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
OPEN = sa.text("outcome IS NULL")
ASKED = sa.text("deadline_asked AND status = 'ACTIVE'")


def upgrade() -> None:
    op.create_table(
        "guarantees",
        sa.Column("id", ID, primary_key=True),
        sa.Column("owner", sa.Text, nullable=False),
        sa.Column("request_id", sa.Text),
        sa.Column("task_id", sa.Text, sa.ForeignKey("tasks.id", ondelete="CASCADE")),
        sa.Column("bytes", sa.BigInteger, nullable=False),
        sa.Column("bytes_left", sa.BigInteger, nullable=False),
        sa.Column("sink", sa.Text, nullable=False),
        sa.Column("server", sa.Text, nullable=False),
        sa.Column("made_at", sa.Double, nullable=False),
        sa.Column("deadline", sa.Double, nullable=False),
        sa.Column("sure", sa.Double, nullable=False),
        sa.Column("chance", sa.Double, nullable=False),
        sa.Column("chance_now", sa.Double, nullable=False),
        sa.Column("t50", sa.Double),
        sa.Column("t95", sa.Double),
        sa.Column("expires_at", sa.Double),
        sa.Column("ended_at", sa.Double),
        sa.Column("outcome", sa.Text),
        sa.UniqueConstraint("owner", "request_id"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_guarantees_owner_id", "guarantees", ["owner", "id"])
    op.create_index("ix_guarantees_task_id", "guarantees", ["task_id"])
    op.create_index("ix_guarantees_open", "guarantees", ["owner"], sqlite_where=OPEN, postgresql_where=OPEN)
    op.create_table(
        "guarantee_shares",
        sa.Column("guarantee_id", ID, sa.ForeignKey("guarantees.id", ondelete="CASCADE"), primary_key=True),
        sa.Column("source", sa.Text, primary_key=True),
        sa.Column("rate", sa.Double, nullable=False),
        sa.Column("since", sa.Double, nullable=False),
    )
    op.add_column("tasks", sa.Column("deadline_asked", sa.Boolean, nullable=False, server_default=sa.text("false")))
    op.add_column("tasks", sa.Column("deadline_chance", sa.Double))
    op.add_column("tasks", sa.Column("deadline_holds_at", sa.Double))
    op.add_column("tasks", sa.Column("deadline_grade", sa.Text))
    op.add_column("tasks", sa.Column("watcher", sa.Text))
    op.add_column("tasks", sa.Column("watched_until", sa.Double))
    op.create_index("ix_tasks_asked", "tasks", ["watched_until"], sqlite_where=ASKED, postgresql_where=ASKED)
