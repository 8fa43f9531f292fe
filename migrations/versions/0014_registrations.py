"""The subject who registered each replica, unknown for existing replicas; former directories of collections."""

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"


def upgrade() -> None:
    op.add_column("endpoints", sa.Column("moves", sa.Integer, nullable=False, server_default="0"))
    op.add_column("replicas", sa.Column("registered_by", sa.Text))
    op.add_column("replicas", sa.Column("registered_as_admin", sa.Boolean, nullable=False, server_default=sa.false()))
    op.add_column("replicas", sa.Column("registered_moves", sa.Integer, nullable=False, server_default="0"))
    collection = sa.ForeignKey("collections.id", ondelete="CASCADE", name="fk_former_folders_collection_id")
    op.create_table(
        "former_folders",
        sa.Column("collection_id", sa.Text, collection, primary_key=True),
        sa.Column("host", sa.Text, primary_key=True),
        sa.Column("folder", sa.Text, primary_key=True),
    )
