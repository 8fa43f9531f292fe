"""A mark of tasks whose partial data must still be deleted."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"

UNSWEPT = sa.text("unswept IS NOT NULL")


def upgrade() -> None:
    op.add_column("tasks", sa.Column("unswept", sa.Double))
    op.create_index("ix_tasks_unswept", "tasks", ["unswept"], sqlite_where=UNSWEPT, postgresql_where=UNSWEPT)
