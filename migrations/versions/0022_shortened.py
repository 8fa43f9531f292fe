"""A partial copy whose rest others fetched ended as `shortened`; it was called `relieved`."""

from alembic import op

revision = "0022"
down_revision = "0021"


def upgrade() -> None:
    op.execute("""UPDATE traces SET ranges = replace(ranges, '"relieved"', '"shortened"')""")
