"""The number of a task's files that were copied but could not be verified."""

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0015"


def upgrade() -> None:
    op.add_column("tasks", sa.Column("files_unverified", sa.BigInteger, nullable=False, server_default="0"))
