"""Additional hosts from which an endpoint may send its data."""

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"


def upgrade() -> None:
    op.add_column("endpoints", sa.Column("data_hosts", sa.Text, nullable=False, server_default=""))
