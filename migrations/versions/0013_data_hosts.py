"""Other hosts from which an endpoint's data may come."""

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"


def upgrade() -> None:
    op.add_column("endpoints", sa.Column("data_hosts", sa.Text, nullable=False, server_default=""))
