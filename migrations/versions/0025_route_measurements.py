"""Measurements of routes over depots."""

import sqlalchemy as sa
from alembic import op

revision = "0025"
down_revision = "0024"

ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "route_measurements",
        sa.Column("id", ID, primary_key=True),
        sa.Column("ended", sa.Double, nullable=False),
        sa.Column("reporter", sa.Text, nullable=False),
        sa.Column("site", sa.Text, nullable=False),
        sa.Column("scheme", sa.Text, nullable=False),
        sa.Column("host", sa.Text, nullable=False),
        sa.Column("route", sa.Text, nullable=False),
        sa.Column("bytes", sa.BigInteger, nullable=False),
        sa.Column("seconds", sa.Double, nullable=False),
        sa.Column("sessions", sa.Integer, nullable=False),
        sa.Column("opening_seconds", sa.Double, nullable=False),
        sa.Column("beginning", sa.BigInteger, nullable=False),
        sa.Column("beginning_seconds", sa.Double, nullable=False),
        sa.UniqueConstraint("reporter", "host", "scheme", "route", "ended"),
    )
    op.create_index("ix_route_measurements_host_ended", "route_measurements", ["host", "ended"])
    op.create_index("ix_route_measurements_ended", "route_measurements", ["ended"])
