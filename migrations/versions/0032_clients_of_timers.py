"""The client that created a timer, since a timer ends with it. Of older timers, the client is not known."""

import sqlalchemy as sa
from alembic import op

revision = "0032"
down_revision = "0031"


def upgrade() -> None:
    op.add_column("timers", sa.Column("client_id", sa.Text))
