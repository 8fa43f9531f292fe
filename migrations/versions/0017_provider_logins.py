"""A time limit for existing tokens from logins at an identity provider: 30 days from the login."""

from alembic import op

revision = "0017"
down_revision = "0016"

WORD = 30 * 86_400
"""Seconds from the login to the limit."""


def upgrade() -> None:
    """Limit tokens from logins at a provider.

    Tokens from logins with a token that an admin issued are not changed: they last as long as that token. At this
    version, there were no other kinds of login.
    """
    op.execute(
        f"""
        WITH RECURSIVE issued(id) AS (
            SELECT id FROM tokens WHERE kind = 'token'
            UNION ALL
            SELECT tokens.id FROM tokens JOIN issued ON tokens.parent_id = issued.id
        )
        UPDATE tokens
        SET limit_at = login_at + {WORD},
            expires_at = CASE WHEN expires_at < login_at + {WORD} THEN expires_at ELSE login_at + {WORD} END
        WHERE kind <> 'token' AND limit_at IS NULL AND login_at IS NOT NULL AND id NOT IN (SELECT id FROM issued)
        """
    )
