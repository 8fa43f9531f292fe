"""Removal of the schemas of Procrastinate, which NOTIFY replaces for waking workers."""

import sqlalchemy as sa
from alembic import op

revision = "0021"
down_revision = "0020"


def upgrade() -> None:
    bind = op.get_bind()
    if bind.dialect.name == "postgresql":
        queues = sa.text(r"SELECT quote_ident(nspname) FROM pg_namespace WHERE nspname LIKE 'coget\_queue\_%'")
        for (name,) in bind.execute(queues).all():
            op.execute(f"DROP SCHEMA {name} CASCADE")
