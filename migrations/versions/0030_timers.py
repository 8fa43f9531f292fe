"""Timers, which submit transfers at planned times, and their latest runs."""

import sqlalchemy as sa
from alembic import op

revision = "0030"
down_revision = "0029"

ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
RUNNING = sa.text("next_run IS NOT NULL AND stopped IS NULL")


def upgrade() -> None:
    op.create_table(
        "timers",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("owner", sa.Text, nullable=False),
        sa.Column("role", sa.Text, nullable=False),
        sa.Column("token_id", ID),
        sa.Column("limit_at", sa.Double),
        sa.Column("name", sa.Text),
        sa.Column("transfer", sa.Text, nullable=False),
        sa.Column("start", sa.Double, nullable=False),
        sa.Column("interval", sa.BigInteger),
        sa.Column("until", sa.Double),
        sa.Column("most", sa.BigInteger),
        sa.Column("next_run", sa.Double),
        sa.Column("stopped", sa.Text),
        sa.Column("reason", sa.Text),
        sa.Column("runs", sa.BigInteger, nullable=False),
        sa.Column("errors", sa.BigInteger, nullable=False),
        sa.Column("submitted_at", sa.Double, nullable=False),
        sa.Column("last_ran_at", sa.Double),
    )
    op.create_index("ix_timers_owner_submitted_at", "timers", ["owner", "submitted_at"])
    op.create_index("ix_timers_token_id", "timers", ["token_id"])
    op.create_index("ix_timers_next_run", "timers", ["next_run"], sqlite_where=RUNNING, postgresql_where=RUNNING)
    op.create_table(
        "timer_runs",
        sa.Column("timer_id", sa.Text, sa.ForeignKey("timers.id", ondelete="CASCADE"), primary_key=True),
        sa.Column("number", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("planned_at", sa.Double, nullable=False),
        sa.Column("ran_at", sa.Double, nullable=False),
        sa.Column("task_id", sa.Text),
        sa.Column("error_code", sa.Text),
        sa.Column("error", sa.Text),
        sqlite_with_rowid=False,
    )
