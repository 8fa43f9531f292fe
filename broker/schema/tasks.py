"""Tasks, the work that they consist of, who is at it, and what happened.

The tables are the truth. What is leased is in `work`, fenced by worker and number of the lease; a worker that is gone
from `workers` has no leases. Rows are locked in this order: `workers`, `tasks` by their ids, `work`.
"""

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Double,
    ForeignKey,
    Index,
    Integer,
    Table,
    Text,
    UniqueConstraint,
    text,
)

from broker.schema.base import HELD, ID, METADATA, MOMENT, TOLD

__all__ = ["FAILED", "UNFINISHED", "events", "lanes", "tasks", "touched", "tunings", "work", "workers"]

UNFINISHED = text("state IN ('pending', 'leased')")
"""SQLite uses an index of some rows only where a question says the same in the same words."""
ACTIVE = text("status = 'ACTIVE'")
FAILED = text("status = 'FAILED'")
UNTOLD = text("untold IS NOT NULL")
UNSWEPT = text("unswept IS NOT NULL")
RETRYING = text("state = 'pending' AND attempt > 0")

tasks = Table(
    "tasks",
    METADATA,
    Column("id", Text, primary_key=True),
    Column("owner", Text, nullable=False, info=HELD),
    Column("role", Text, nullable=False, server_default="transfer"),  # of its owner, when it was submitted
    Column("token_id", ID),  # with which it was submitted, or from which that came; NULL: none of ours
    Column("submission_id", Text, nullable=False),
    Column("kind", Text, nullable=False),
    Column("status", Text, nullable=False),
    Column("label", Text),
    Column("source", Text, nullable=False),
    Column("destination", Text),
    Column("options", Text, nullable=False),  # JSON of models.tasks.Options
    Column("queue", Text, nullable=False),  # of the site whose workers do it; empty: any
    Column("nice", Integer, nullable=False),  # less is first, so that an index has the order; -1 times the priority
    Column("deadline", MOMENT, nullable=False),
    Column("requested_at", MOMENT, nullable=False),
    Column("started_at", MOMENT),
    Column("completed_at", MOMENT),
    Column("paused", Text),  # why, by an admin; NULL: not
    Column("canceled", Text, info=TOLD),  # by whom; NULL: not
    Column("canceled_by_admin", Boolean, nullable=False),
    Column("cancel_message", Text),
    Column("waits", Text, nullable=False),  # for what, in a sentence; empty: it does not
    Column("error_code", Text),  # why it failed, or what it tries to overcome; NULL: all goes well
    Column("error", Text),
    Column("total", BigInteger, nullable=False),  # rows of `work`, by what became of them
    Column("succeeded", BigInteger, nullable=False),
    Column("failed", BigInteger, nullable=False),
    Column("skipped", BigInteger, nullable=False),
    Column("canceled_work", BigInteger, nullable=False),
    Column("expired", BigInteger, nullable=False),
    Column("files", BigInteger, nullable=False),
    Column("directories", BigInteger, nullable=False),
    Column("symlinks", BigInteger, nullable=False),
    Column("bytes", BigInteger, nullable=False),  # of files that are to be copied, or were, as far as they are known
    Column("files_skipped", BigInteger, nullable=False),
    Column("files_transferred", BigInteger, nullable=False),
    Column("bytes_transferred", BigInteger, nullable=False),
    Column("bytes_checksummed", BigInteger, nullable=False),
    Column("faults", BigInteger, nullable=False),
    # of the destination, in which a sync deleted nothing, since it does not know what is extra
    Column("files_unverified", BigInteger, nullable=False, server_default="0"),  # though they should have been
    Column("folders_not_cleared", BigInteger, nullable=False, server_default="0"),
    Column("untold", MOMENT),  # when to tell of its end; NULL: there is nothing to tell
    Column("unswept", MOMENT),  # when to clear away what it had begun; NULL: there is nothing
    UniqueConstraint("owner", "submission_id"),
    Index(None, "owner", "requested_at"),
    Index(
        "ix_tasks_active",
        "owner",
        "kind",
        "source",
        "destination",
        "nice",
        "deadline",
        "requested_at",
        sqlite_where=ACTIVE,
        postgresql_where=ACTIVE,
    ),
    Index("ix_tasks_failed", "completed_at", sqlite_where=FAILED, postgresql_where=FAILED),
    Index("ix_tasks_untold", "untold", sqlite_where=UNTOLD, postgresql_where=UNTOLD),
    Index("ix_tasks_unswept", "unswept", sqlite_where=UNSWEPT, postgresql_where=UNSWEPT),
    Index("ix_tasks_deadline", "deadline", sqlite_where=ACTIVE, postgresql_where=ACTIVE),
)

work = Table(
    "work",
    METADATA,
    Column("id", ID, primary_key=True),
    Column("task_id", ForeignKey(tasks.c.id, ondelete="CASCADE"), nullable=False),
    Column("key", Text, nullable=False),  # a hash of what is to be done: to find it again adds nothing
    Column("kind", Text, nullable=False),
    Column("phase", Integer, nullable=False),  # nothing of a later one begins before
    Column("source", Text, nullable=False),
    Column("destination", Text, nullable=False),
    Column("size", BigInteger, nullable=False),
    Column("details", Text, nullable=False),  # JSON of models.tasks.Details
    Column("state", Text, nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("lost", Integer, nullable=False),  # attempts that ended with the worker that made them
    Column("leases", BigInteger, nullable=False, server_default="0"),  # so many so far: the number of the last one
    Column("worker", Text),
    Column("not_before", MOMENT, nullable=False),
    Column("received", Text),  # JSON: ranges that the destination has of an attempt that failed or was given back
    Column("checksum", Text),  # ALGORITHM:HEX
    Column("error_code", Text),
    Column("error", Text),
    Column("finished_at", MOMENT),
    UniqueConstraint("task_id", "key"),
    Index(
        "ix_work_unfinished", "task_id", "state", "phase", "size", sqlite_where=UNFINISHED, postgresql_where=UNFINISHED
    ),
    Index("ix_work_retrying", "task_id", sqlite_where=RETRYING, postgresql_where=RETRYING),
    Index(None, "task_id", "state", "id"),
    Index("ix_work_worker", "worker", sqlite_where=text("state = 'leased'"), postgresql_where=text("state = 'leased'")),
    sqlite_autoincrement=True,
)

touched = Table(
    "touched",
    METADATA,
    Column("task_id", ForeignKey(tasks.c.id, ondelete="CASCADE"), primary_key=True),
    Column("role", Text, primary_key=True),  # as storage.touched names them
    Column("token", Text, primary_key=True),  # as the server tells it apart from all else there
    Column("path", Text, primary_key=True),  # from its collection's root
    sqlite_with_rowid=False,
)
"""What a task that deletes reads and writes, by whichever path: so that it deletes nothing of that."""

workers = Table(
    "workers",
    METADATA,
    Column("id", Text, primary_key=True),
    Column("site", Text, nullable=False),
    Column("place", Text, nullable=False),  # host and process, for people
    Column("started_at", MOMENT, nullable=False),
    Column("seen_at", MOMENT, nullable=False),
    Column("flushed", BigInteger, nullable=False, server_default="0"),  # the number of the last that it wrote
)

lanes = Table(
    "lanes",
    METADATA,
    Column("id", ID, primary_key=True),
    Column("worker", ForeignKey(workers.c.id, ondelete="CASCADE"), nullable=False),
    Column("task_id", Text, nullable=False),
    Column("owner", Text, nullable=False, info=HELD),
    Column("source", Text, nullable=False),
    Column("destination", Text, nullable=False),
    Column("opened_at", MOMENT, nullable=False),
    Index(None, "worker"),
)
"""Each is a transfer under way: what the concurrency of collections counts, over all workers."""

tunings = Table(
    "tunings",
    METADATA,
    Column("id", ID, primary_key=True),
    Column("source", Text, nullable=False),
    Column("destination", Text, nullable=False),
    Column("at", MOMENT, nullable=False),
    Column("concurrency", Integer, nullable=False),
    Column("step", Integer, nullable=False),
    Column("rate", Double, nullable=False),
    Column("failures", Double, nullable=False),
    Column("reason", Text, nullable=False),
    Index(None, "source", "destination", "id"),
)
"""How many lanes a pair of collections has, each change with its reason."""

events = Table(
    "events",
    METADATA,
    Column("id", ID, primary_key=True),
    Column("task_id", ForeignKey(tasks.c.id, ondelete="CASCADE"), nullable=False),
    Column("at", MOMENT, nullable=False),
    Column("code", Text, nullable=False),
    Column("is_error", Boolean, nullable=False),
    Column("description", Text, nullable=False),
    Column("details", Text, nullable=False),
    Index(None, "task_id", "id"),
)
