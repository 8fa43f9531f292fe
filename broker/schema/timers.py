"""Timers, which submit transfers at planned times, and their latest runs."""

from sqlalchemy import BigInteger, Column, ForeignKey, Index, Table, Text, text

from broker.schema.base import HELD, ID, METADATA, MOMENT

__all__ = ["timer_runs", "timers"]

RUNNING = text("next_run IS NOT NULL AND stopped IS NULL")

timers = Table(
    "timers",
    METADATA,
    Column("id", Text, primary_key=True),
    Column("owner", Text, nullable=False, info=HELD),
    Column("role", Text, nullable=False),  # the owner's role at creation, or at the last resumption with new rights
    Column("token_id", ID),  # token or login of the creation; NULL: not of this broker
    Column("client_id", Text),  # client to which this token was granted, also if it was deleted; NULL: none
    Column("limit_at", MOMENT),  # time at which this credential ends at the latest
    Column("name", Text),
    Column("transfer", Text, nullable=False),  # JSON of models.timers.TimerTransfer
    Column("start", MOMENT, nullable=False),
    Column("interval", BigInteger),  # seconds; NULL: runs once
    Column("until", MOMENT),
    Column("most", BigInteger),  # most runs
    Column("next_run", MOMENT),  # NULL: it has ended
    Column("stopped", Text),  # reason why it is inactive: models.timers.Stopped
    Column("reason", Text),  # the same reason as a sentence
    Column("runs", BigInteger, nullable=False),
    Column("errors", BigInteger, nullable=False),
    Column("submitted_at", MOMENT, nullable=False),
    Column("last_ran_at", MOMENT),
    Index(None, "owner", "submitted_at"),
    Index(None, "token_id"),
    Index("ix_timers_next_run", "next_run", sqlite_where=RUNNING, postgresql_where=RUNNING),
)

timer_runs = Table(
    "timer_runs",
    METADATA,
    Column("timer_id", ForeignKey(timers.c.id, ondelete="CASCADE"), primary_key=True),
    Column("number", BigInteger, primary_key=True, autoincrement=False),
    Column("planned_at", MOMENT, nullable=False),
    Column("ran_at", MOMENT, nullable=False),
    Column("task_id", Text),  # NULL: no task could be submitted
    Column("error_code", Text),
    Column("error", Text),
    sqlite_with_rowid=False,
)
"""The latest runs of timers. The number of a run is unique, so that no run takes place twice."""
