"""Tasks, their work items, workers, lanes and events.

Leases are rows of `work` with a worker and a lease number, both of which must match when a worker records a result. A
worker without a row in `workers` has no leases. Rows are locked in this order: `workers`, `tasks` by id, `work`.
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

from broker.schema.base import ACTOR, HELD, ID, METADATA, MOMENT

__all__ = [
    "ASKED",
    "FAILED",
    "UNFINISHED",
    "events",
    "lanes",
    "tasks",
    "touched",
    "tunings",
    "turns",
    "work",
    "workers",
]

UNFINISHED = text("state IN ('pending', 'leased')")
"""The condition for unfinished work. SQLite uses a partial index only for queries with exactly this text."""
ACTIVE = text("status = 'ACTIVE'")
FAILED = text("status = 'FAILED'")
UNNOTIFIED = text("untold IS NOT NULL")
UNSWEPT = text("unswept IS NOT NULL")
ASKED = text("deadline_asked AND status = 'ACTIVE'")
RETRYING = text("state = 'pending' AND attempt > 0")

tasks = Table(
    "tasks",
    METADATA,
    Column("id", Text, primary_key=True),
    Column("owner", Text, nullable=False, info=HELD),
    Column("role", Text, nullable=False, server_default="transfer"),  # the owner's role at submission
    Column("token_id", ID),  # token or login of the submission; NULL: not of this broker
    Column("submission_id", Text, nullable=False),
    Column("kind", Text, nullable=False),
    Column("status", Text, nullable=False),
    Column("label", Text),
    Column("source", Text, nullable=False),
    Column("destination", Text),
    Column("options", Text, nullable=False),  # JSON of models.tasks.Options
    Column("queue", Text, nullable=False),  # site whose workers run it; empty: any
    Column("nice", Integer, nullable=False),  # -1 times the priority, for the index order
    Column("deadline", MOMENT, nullable=False),
    Column("requested_at", MOMENT, nullable=False),
    Column("started_at", MOMENT),
    Column("completed_at", MOMENT),
    Column("paused", Text),  # reason of the admin who paused it; NULL: not paused
    Column("canceled", Text, info=ACTOR),  # subject that canceled it; NULL: not canceled
    Column("canceled_by_admin", Boolean, nullable=False),
    Column("cancel_message", Text),
    Column("waits", Text, nullable=False),  # reason for waiting, as a sentence; empty: not waiting
    Column("error_code", Text),  # error that made it fail, or that is being retried
    Column("error", Text),
    Column("error_side", Text, nullable=False, server_default=""),  # source or destination; empty: unknown
    Column("error_since", MOMENT),  # when the error began that is being retried; NULL: none
    Column("total", BigInteger, nullable=False),  # number of rows of `work`; the next columns count by state
    Column("succeeded", BigInteger, nullable=False),
    Column("failed", BigInteger, nullable=False),
    Column("skipped", BigInteger, nullable=False),
    Column("canceled_work", BigInteger, nullable=False),
    Column("expired", BigInteger, nullable=False),
    Column("files", BigInteger, nullable=False),
    Column("directories", BigInteger, nullable=False),
    Column("symlinks", BigInteger, nullable=False),
    Column("bytes", BigInteger, nullable=False),  # known size of the files to copy, and copied
    Column("files_skipped", BigInteger, nullable=False),
    Column("files_transferred", BigInteger, nullable=False),
    Column("bytes_transferred", BigInteger, nullable=False),
    Column("bytes_checksummed", BigInteger, nullable=False),
    Column("faults", BigInteger, nullable=False),
    # folders_not_cleared: destination directories where a sync deleted no extra files, as it could not identify them
    Column(
        "files_unverified", BigInteger, nullable=False, server_default="0"
    ),  # copied without the required verification
    Column("folders_not_cleared", BigInteger, nullable=False, server_default="0"),
    Column("untold", MOMENT),  # when to call the webhook for its end; NULL: no call due
    Column("deadline_asked", Boolean, nullable=False, server_default=text("false")),  # not the default deadline
    Column("deadline_chance", Double),  # probability that it is kept, at the last look; NULL: unknown
    Column("deadline_holds_at", MOMENT),  # when it ends with the wanted probability; NULL: unknown
    Column("deadline_grade", Text),  # coalloc.guarantees.deadline.Grade, as last told; NULL: not told yet
    Column("watcher", Text),  # process that looks at its deadline, until `watched_until`
    Column("watched_until", MOMENT),
    Column("unswept", MOMENT),  # when to remove its temporary files; NULL: none
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
    Index("ix_tasks_token_id", "token_id", sqlite_where=ACTIVE, postgresql_where=ACTIVE),
    Index("ix_tasks_failed", "completed_at", sqlite_where=FAILED, postgresql_where=FAILED),
    Index("ix_tasks_untold", "untold", sqlite_where=UNNOTIFIED, postgresql_where=UNNOTIFIED),
    Index("ix_tasks_unswept", "unswept", sqlite_where=UNSWEPT, postgresql_where=UNSWEPT),
    Index("ix_tasks_asked", "watched_until", sqlite_where=ASKED, postgresql_where=ASKED),
    Index("ix_tasks_deadline", "deadline", sqlite_where=ACTIVE, postgresql_where=ACTIVE),
)

work = Table(
    "work",
    METADATA,
    Column("id", ID, primary_key=True),
    Column("task_id", ForeignKey(tasks.c.id, ondelete="CASCADE"), nullable=False),
    Column("key", Text, nullable=False),  # hash of kind and paths; a duplicate is not added
    Column("kind", Text, nullable=False),
    Column("phase", Integer, nullable=False),  # a phase starts when all earlier phases are finished
    Column("source", Text, nullable=False),
    Column("destination", Text, nullable=False),
    Column("size", BigInteger, nullable=False),
    Column("details", Text, nullable=False),  # JSON of models.tasks.Details
    Column("state", Text, nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("lost", Integer, nullable=False),  # attempts that ended because the worker died
    Column("leases", BigInteger, nullable=False, server_default="0"),  # number of leases so far, and of the last one
    Column("worker", Text),
    Column("not_before", MOMENT, nullable=False),
    Column("received", Text),  # JSON: ranges that earlier attempts received
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
    Column("role", Text, primary_key=True),  # roles as in storage.touched
    Column("token", Text, primary_key=True),  # server's id of the file or directory
    Column("path", Text, primary_key=True),  # path from its collection's root
    sqlite_with_rowid=False,
)
"""Files and directories that a task with deletions reads or writes, under all paths; it deletes none of them."""

workers = Table(
    "workers",
    METADATA,
    Column("id", Text, primary_key=True),
    Column("site", Text, nullable=False),
    Column("place", Text, nullable=False),  # host and process, shown to users
    Column("started_at", MOMENT, nullable=False),
    Column("seen_at", MOMENT, nullable=False),
    Column("flushed", BigInteger, nullable=False, server_default="0"),  # number of its last write
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
    sqlite_autoincrement=True,  # workers that count as dead keep the numbers of deleted lanes
)
"""Open lanes of all workers, which the concurrency limits of collections count."""

turns = Table(
    "turns",
    METADATA,
    Column("id", ID, primary_key=True),
    Column("owner", Text, nullable=False, info=HELD),
    Column("source", Text, nullable=False),
    Column("destination", Text, nullable=False),
    Column("at", MOMENT, nullable=False),
    Index(None, "owner"),
)
"""The last time that each user got a lane between two collections, for a day; users get lanes in turns."""

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
"""Changes to the number of lanes between two collections, with the reasons."""

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
