"""Unique numbers of leases and of workers' writes; cancellation of unfinished work of finished tasks."""

import sqlalchemy as sa
from alembic import op

revision = "0019"
down_revision = "0018"

LEFT = "task_id = tasks.id AND state IN ('pending', 'leased')"
OVER = "status IN ('SUCCEEDED', 'FAILED')"


def upgrade() -> None:
    op.add_column("work", sa.Column("leases", sa.BigInteger, nullable=False, server_default="0"))
    op.add_column("workers", sa.Column("flushed", sa.BigInteger, nullable=False, server_default="0"))
    op.execute(
        f"UPDATE tasks SET canceled_work = canceled_work + (SELECT count(*) FROM work WHERE {LEFT}), "
        f"unswept = completed_at WHERE {OVER} AND EXISTS (SELECT 1 FROM work WHERE {LEFT})"
    )
    op.execute(
        "UPDATE work SET state = 'canceled', worker = NULL WHERE state IN ('pending', 'leased') "
        f"AND task_id IN (SELECT id FROM tasks WHERE {OVER})"
    )
