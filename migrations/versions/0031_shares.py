"""Guest collections: directories of other collections, shared by users; and which collections allow that."""

import sqlalchemy as sa
from alembic import op

revision = "0031"
down_revision = "0030"


def upgrade() -> None:
    op.add_column("collections", sa.Column("sharing", sa.Boolean, nullable=False, server_default=sa.false()))
    op.create_table(
        "shares",
        sa.Column("collection_id", sa.Text, sa.ForeignKey("collections.id", ondelete="CASCADE"), primary_key=True),
        sa.Column("host_id", sa.Text, sa.ForeignKey("collections.id", ondelete="CASCADE"), nullable=False),
        sa.Column("folder", sa.Text, nullable=False),
    )
    op.create_index("ix_shares_host_id", "shares", ["host_id"])
