"""Last turns of users, who get lanes one after the other."""

import sqlalchemy as sa
from alembic import op

revision = "0029"
down_revision = "0027"

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
