"""New name `shortened` of the outcome `relieved`: other sources fetched the rest of a partial copy."""

from alembic import op

revision = "0022"
down_revision = "0021"


def upgrade() -> None:
    op.execute("""UPDATE traces SET ranges = replace(ranges, '"relieved"', '"shortened"')""")
