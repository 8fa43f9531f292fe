"""The token with which an admin issued each token, as far as the audit log shows."""

import re

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"

ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
ISSUED = re.compile(r"(\d{1,18}) for ")


def upgrade() -> None:
    op.add_column("tokens", sa.Column("issuer_id", ID))
    op.create_index("ix_tokens_issuer_id", "tokens", ["issuer_id"])
    audit = sa.table("audit", *(sa.column(name) for name in ("at", "subject", "action", "thing")))
    tokens = sa.table(
        "tokens", *(sa.column(name) for name in ("id", "subject", "role", "kind", "created_at", "issuer_id"))
    )
    connection = op.get_bind()
    notes = connection.execute(sa.select(audit).where(audit.c.action == "issue token")).all()
    for note in notes:
        if said := ISSUED.match(note.thing):
            connection.execute(_issued(tokens, int(said[1]), note.subject, note.at))


def _issued(tokens: sa.TableClause, number: int, by: str, at: float) -> sa.Update:
    """Set a token's issuer to the newest token that the admin had then, since the log names only the admin."""
    theirs = tokens.alias("theirs")
    newest = (
        sa.select(sa.func.max(theirs.c.id))
        .where(
            theirs.c.subject == by,
            theirs.c.role == "admin",
            theirs.c.kind == "token",
            theirs.c.created_at <= at,
            theirs.c.id < number,
        )
        .scalar_subquery()
    )
    return sa.update(tokens).where(tokens.c.id == number, tokens.c.kind == "token").values(issuer_id=newest)
