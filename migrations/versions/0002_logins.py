"""OAuth2 logins: clients, parents of tokens, identities, keys."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"

ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "clients",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("hash", sa.Text),
        sa.Column("role", sa.Text),
        sa.Column("made_by", sa.Text),
        sa.Column("created_at", sa.Double, nullable=False),
        sa.Column("used_at", sa.Double),
        sa.Column("revoked_at", sa.Double),
    )
    _tokens()
    op.create_table(
        "codes",
        sa.Column(
            "token_id", ID, sa.ForeignKey("tokens.id", ondelete="CASCADE", name="fk_codes_token_id"), primary_key=True
        ),
        sa.Column("redirect_uri", sa.Text, nullable=False),
        sa.Column("challenge", sa.Text),
        sa.Column("nonce", sa.Text),
        sa.Column("offline", sa.Boolean, nullable=False),
    )
    op.create_table(
        "identities",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("subject", sa.Text, nullable=False),
        sa.Column("name", sa.Text),
        sa.Column("email", sa.Text),
        sa.Column("first_seen", sa.Double, nullable=False),
        sa.Column("last_seen", sa.Double, nullable=False),
        sa.UniqueConstraint("subject", name="uq_identities_subject"),
    )
    op.create_table(
        "keys",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("private", sa.Text, nullable=False),
        sa.Column("created_at", sa.Double, nullable=False),
    )


def _tokens() -> None:
    with op.batch_alter_table("tokens") as table:
        table.add_column(sa.Column("kind", sa.Text, nullable=False, server_default="token"))
        table.add_column(sa.Column("parent_id", ID))
        table.add_column(sa.Column("client_id", sa.Text))
        table.add_column(sa.Column("server", sa.Text))
        table.add_column(sa.Column("scopes", sa.Text))
        table.add_column(sa.Column("login_at", sa.Double))
        table.add_column(sa.Column("limit_at", sa.Double))
        table.create_foreign_key("fk_tokens_parent_id", "tokens", ["parent_id"], ["id"], ondelete="SET NULL")
        table.create_foreign_key("fk_tokens_client_id", "clients", ["client_id"], ["id"], ondelete="CASCADE")
        table.create_index("ix_tokens_parent_id", ["parent_id"])
        table.create_index("ix_tokens_expires_at", ["expires_at"])
