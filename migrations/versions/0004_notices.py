"""A mark of tasks whose end must still be announced."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"

UNTOLD = sa.text("untold IS NOT NULL")


def upgrade() -> None:
    op.add_column("tasks", sa.Column("untold", sa.Double))
    op.create_index("ix_tasks_untold", "tasks", ["untold"], sqlite_where=UNTOLD, postgresql_where=UNTOLD)
