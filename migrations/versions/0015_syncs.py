"""The number of destination directories in which a sync deleted no extra entries, because a check failed."""

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"


def upgrade() -> None:
    op.add_column("tasks", sa.Column("folders_not_cleared", sa.BigInteger, nullable=False, server_default="0"))
