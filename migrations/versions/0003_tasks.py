"""Collections, tasks and their work items."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0003"
down_revision = "0002"

ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
NAME = sa.Text().with_variant(postgresql.TEXT(collation="C"), "postgresql")


def upgrade() -> None:
    _collections()
    _access_rules()
    _bookmarks()
    _pause_rules()
    _tasks()
    _work()
    _workers()
    _lanes()
    _tunings()
    _events()


def _collections() -> None:
    op.create_table(
        "collections",
        sa.Column("id", sa.Text, nullable=False),
        sa.Column("name", NAME, nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("endpoint_id", ID),
        sa.Column("base", sa.Text, nullable=False),
        sa.Column("site", sa.Text, nullable=False),
        sa.Column("owner", sa.Text, nullable=False),
        sa.Column("description", sa.Text, nullable=False),
        sa.Column("credential", sa.Text, nullable=False),
        sa.Column("concurrency", sa.Integer),
        sa.Column("rate", sa.Double),
        sa.Column("rate_until", sa.Double, nullable=False),
        sa.Column("created_at", sa.Double, nullable=False),
        sa.ForeignKeyConstraint(["endpoint_id"], ["endpoints.id"], name="fk_collections_endpoint_id"),
        sa.PrimaryKeyConstraint("id", name="pk_collections"),
        sa.UniqueConstraint("name", name="uq_collections_name"),
    )


def _access_rules() -> None:
    op.create_table(
        "access_rules",
        sa.Column("id", sa.Text, nullable=False),
        sa.Column("collection_id", sa.Text, nullable=False),
        sa.Column("principal_type", sa.Text, nullable=False),
        sa.Column("principal", sa.Text, nullable=False),
        sa.Column("path", sa.Text, nullable=False),
        sa.Column("permissions", sa.Text, nullable=False),
        sa.Column("created_at", sa.Double, nullable=False),
        sa.ForeignKeyConstraint(
            ["collection_id"], ["collections.id"], name="fk_access_rules_collection_id", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name="pk_access_rules"),
        sa.UniqueConstraint(
            "collection_id",
            "principal_type",
            "principal",
            "path",
            name="uq_access_rules_collection_id_principal_type_principal_path",
        ),
    )


def _bookmarks() -> None:
    op.create_table(
        "bookmarks",
        sa.Column("id", sa.Text, nullable=False),
        sa.Column("owner", sa.Text, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("collection_id", sa.Text, nullable=False),
        sa.Column("path", sa.Text, nullable=False),
        sa.Column("pinned", sa.Boolean, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_bookmarks"),
        sa.UniqueConstraint("owner", "name", name="uq_bookmarks_owner_name"),
    )


def _pause_rules() -> None:
    op.create_table(
        "pause_rules",
        sa.Column("id", sa.Text, nullable=False),
        sa.Column("collection_id", sa.Text, nullable=False),
        sa.Column("subject", sa.Text),
        sa.Column("message", sa.Text, nullable=False),
        sa.Column("operations", sa.Text, nullable=False),
        sa.Column("modified_by", sa.Text, nullable=False),
        sa.Column("created_at", sa.Double, nullable=False),
        sa.Column("modified_at", sa.Double, nullable=False),
        sa.ForeignKeyConstraint(
            ["collection_id"], ["collections.id"], name="fk_pause_rules_collection_id", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name="pk_pause_rules"),
    )
    op.create_index("ix_pause_rules_collection_id", "pause_rules", ["collection_id"])


def _tasks() -> None:
    op.create_table(
        "tasks",
        sa.Column("id", sa.Text, nullable=False),
        sa.Column("owner", sa.Text, nullable=False),
        sa.Column("submission_id", sa.Text, nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("status", sa.Text, nullable=False),
        sa.Column("label", sa.Text),
        sa.Column("source", sa.Text, nullable=False),
        sa.Column("destination", sa.Text),
        sa.Column("options", sa.Text, nullable=False),
        sa.Column("queue", sa.Text, nullable=False),
        sa.Column("nice", sa.Integer, nullable=False),
        sa.Column("deadline", sa.Double, nullable=False),
        sa.Column("requested_at", sa.Double, nullable=False),
        sa.Column("started_at", sa.Double),
        sa.Column("completed_at", sa.Double),
        sa.Column("paused", sa.Text),
        sa.Column("canceled", sa.Text),
        sa.Column("canceled_by_admin", sa.Boolean, nullable=False),
        sa.Column("cancel_message", sa.Text),
        sa.Column("waits", sa.Text, nullable=False),
        sa.Column("error_code", sa.Text),
        sa.Column("error", sa.Text),
        sa.Column("total", sa.BigInteger, nullable=False),
        sa.Column("succeeded", sa.BigInteger, nullable=False),
        sa.Column("failed", sa.BigInteger, nullable=False),
        sa.Column("skipped", sa.BigInteger, nullable=False),
        sa.Column("canceled_work", sa.BigInteger, nullable=False),
        sa.Column("expired", sa.BigInteger, nullable=False),
        sa.Column("files", sa.BigInteger, nullable=False),
        sa.Column("directories", sa.BigInteger, nullable=False),
        sa.Column("symlinks", sa.BigInteger, nullable=False),
        sa.Column("bytes", sa.BigInteger, nullable=False),
        sa.Column("files_skipped", sa.BigInteger, nullable=False),
        sa.Column("files_transferred", sa.BigInteger, nullable=False),
        sa.Column("bytes_transferred", sa.BigInteger, nullable=False),
        sa.Column("bytes_checksummed", sa.BigInteger, nullable=False),
        sa.Column("faults", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_tasks"),
        sa.UniqueConstraint("owner", "submission_id", name="uq_tasks_owner_submission_id"),
    )
    op.create_index(
        "ix_tasks_active",
        "tasks",
        ["owner", "kind", "source", "destination", "nice", "deadline", "requested_at"],
        sqlite_where=sa.text("status = 'ACTIVE'"),
        postgresql_where=sa.text("status = 'ACTIVE'"),
    )
    op.create_index(
        "ix_tasks_deadline",
        "tasks",
        ["deadline"],
        sqlite_where=sa.text("status = 'ACTIVE'"),
        postgresql_where=sa.text("status = 'ACTIVE'"),
    )
    op.create_index("ix_tasks_owner_requested_at", "tasks", ["owner", "requested_at"])


def _work() -> None:
    op.create_table(
        "work",
        sa.Column("id", ID, nullable=False),
        sa.Column("task_id", sa.Text, nullable=False),
        sa.Column("key", sa.Text, nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("phase", sa.Integer, nullable=False),
        sa.Column("source", sa.Text, nullable=False),
        sa.Column("destination", sa.Text, nullable=False),
        sa.Column("size", sa.BigInteger, nullable=False),
        sa.Column("details", sa.Text, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("attempt", sa.Integer, nullable=False),
        sa.Column("lost", sa.Integer, nullable=False),
        sa.Column("worker", sa.Text),
        sa.Column("not_before", sa.Double, nullable=False),
        sa.Column("received", sa.Text),
        sa.Column("checksum", sa.Text),
        sa.Column("error_code", sa.Text),
        sa.Column("error", sa.Text),
        sa.Column("finished_at", sa.Double),
        sa.ForeignKeyConstraint(["task_id"], ["tasks.id"], name="fk_work_task_id", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name="pk_work"),
        sa.UniqueConstraint("task_id", "key", name="uq_work_task_id_key"),
        sqlite_autoincrement=True,
    )
    op.create_index(
        "ix_work_retrying",
        "work",
        ["task_id"],
        sqlite_where=sa.text("state = 'pending' AND attempt > 0"),
        postgresql_where=sa.text("state = 'pending' AND attempt > 0"),
    )
    op.create_index("ix_work_task_id_state_id", "work", ["task_id", "state", "id"])
    op.create_index(
        "ix_work_unfinished",
        "work",
        ["task_id", "state", "phase", "size"],
        sqlite_where=sa.text("state IN ('pending', 'leased')"),
        postgresql_where=sa.text("state IN ('pending', 'leased')"),
    )
    op.create_index(
        "ix_work_worker",
        "work",
        ["worker"],
        sqlite_where=sa.text("state = 'leased'"),
        postgresql_where=sa.text("state = 'leased'"),
    )


def _workers() -> None:
    op.create_table(
        "workers",
        sa.Column("id", sa.Text, nullable=False),
        sa.Column("site", sa.Text, nullable=False),
        sa.Column("place", sa.Text, nullable=False),
        sa.Column("started_at", sa.Double, nullable=False),
        sa.Column("seen_at", sa.Double, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_workers"),
    )


def _lanes() -> None:
    op.create_table(
        "lanes",
        sa.Column("id", ID, nullable=False),
        sa.Column("worker", sa.Text, nullable=False),
        sa.Column("task_id", sa.Text, nullable=False),
        sa.Column("owner", sa.Text, nullable=False),
        sa.Column("source", sa.Text, nullable=False),
        sa.Column("destination", sa.Text, nullable=False),
        sa.Column("opened_at", sa.Double, nullable=False),
        sa.ForeignKeyConstraint(["worker"], ["workers.id"], name="fk_lanes_worker", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name="pk_lanes"),
    )
    op.create_index("ix_lanes_worker", "lanes", ["worker"])


def _tunings() -> None:
    op.create_table(
        "tunings",
        sa.Column("id", ID, nullable=False),
        sa.Column("source", sa.Text, nullable=False),
        sa.Column("destination", sa.Text, nullable=False),
        sa.Column("at", sa.Double, nullable=False),
        sa.Column("concurrency", sa.Integer, nullable=False),
        sa.Column("step", sa.Integer, nullable=False),
        sa.Column("rate", sa.Double, nullable=False),
        sa.Column("failures", sa.Double, nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_tunings"),
    )
    op.create_index("ix_tunings_source_destination_id", "tunings", ["source", "destination", "id"])


def _events() -> None:
    op.create_table(
        "events",
        sa.Column("id", ID, nullable=False),
        sa.Column("task_id", sa.Text, nullable=False),
        sa.Column("at", sa.Double, nullable=False),
        sa.Column("code", sa.Text, nullable=False),
        sa.Column("is_error", sa.Boolean, nullable=False),
        sa.Column("description", sa.Text, nullable=False),
        sa.Column("details", sa.Text, nullable=False),
        sa.ForeignKeyConstraint(["task_id"], ["tasks.id"], name="fk_events_task_id", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name="pk_events"),
    )
    op.create_index("ix_events_task_id_id", "events", ["task_id", "id"])
