"""Last turns of users, who get lanes one after the other; the place and the beginning of a task's error.

Also the successors of refresh tokens, encrypted.
"""

import sqlalchemy as sa
from alembic import op

revision = "0029"
down_revision = "0028"

ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "turns",
        sa.Column("id", ID, primary_key=True),
        sa.Column("owner", sa.Text, nullable=False),
        sa.Column("source", sa.Text, nullable=False),
        sa.Column("destination", sa.Text, nullable=False),
        sa.Column("at", sa.Double, nullable=False),
    )
    op.create_index("ix_turns_owner", "turns", ["owner"])
    op.add_column("tasks", sa.Column("error_side", sa.Text, nullable=False, server_default=""))
    op.add_column("tasks", sa.Column("error_since", sa.Double))
    op.add_column("tokens", sa.Column("successor", sa.Text))
