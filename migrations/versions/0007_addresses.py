"""Approvals of private and loopback addresses of endpoints; existing endpoints are approved."""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    op.add_column("endpoints", sa.Column("opened", sa.Text, nullable=False, server_default=""))
    op.execute(sa.text("UPDATE endpoints SET opened = 'upgrade'"))
