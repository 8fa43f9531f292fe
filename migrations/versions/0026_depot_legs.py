"""Subjects of depots, and their reports of legs."""

import sqlalchemy as sa
from alembic import op

revision = "0026"
down_revision = "0025"

ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.add_column("depots", sa.Column("subject", sa.Text))
    op.create_table(
        "depot_legs",
        sa.Column("id", ID, primary_key=True),
        sa.Column("depot_id", ID, sa.ForeignKey("depots.id", ondelete="CASCADE"), nullable=False),
        sa.Column("host", sa.Text, nullable=False),
        sa.Column("port", sa.Integer, nullable=False),
        sa.Column("ended", sa.Double, nullable=False),
        sa.Column("sessions", sa.Integer, nullable=False),
        sa.Column("failures", sa.Integer, nullable=False),
        sa.Column("connect_seconds", sa.Double),
        sa.Column("round_trip", sa.Double),
        sa.Column("loss", sa.Double),
        sa.Column("rate", sa.Double),
    )
    op.create_index("ix_depot_legs_depot_id_host_port_ended", "depot_legs", ["depot_id", "host", "port", "ended"])
    op.create_index("ix_depot_legs_ended", "depot_legs", ["ended"])
