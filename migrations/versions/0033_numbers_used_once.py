"""Numbers of tokens and lanes that SQLite does not use again, and an index of the tokens of active tasks."""

import sqlalchemy as sa
from alembic import op

revision = "0033"
down_revision = "0032"

ACTIVE = sa.text("status = 'ACTIVE'")
USED = "SELECT id FROM tokens UNION ALL SELECT issuer_id FROM tokens UNION ALL SELECT token_id FROM tasks"


def upgrade() -> None:
    op.create_index("ix_tasks_token_id", "tasks", ["token_id"], sqlite_where=ACTIVE, postgresql_where=ACTIVE)
    if op.get_bind().dialect.name != "sqlite":
        return
    for table in ("tokens", "lanes"):
        with op.batch_alter_table(table, recreate="always", table_kwargs={"sqlite_autoincrement": True}):
            pass
    # tasks and timers may have numbers of tokens that were deleted
    op.execute("DELETE FROM sqlite_sequence WHERE name = 'tokens'")
    op.execute(
        "INSERT INTO sqlite_sequence (name, seq) SELECT 'tokens', coalesce(max(id), 0) "
        f"FROM ({USED} UNION ALL SELECT token_id FROM timers)"
    )
