"""Each reporter's measurements of routes in the order of their ends, for their limit and for reports."""

from alembic import op

revision = "0027"
down_revision = "0026"


def upgrade() -> None:
    op.create_index("ix_route_measurements_reporter_ended", "route_measurements", ["reporter", "ended"])
