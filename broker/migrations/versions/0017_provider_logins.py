"""What logins at an identity provider gave before its word had an end: it lasts for 30 days from the login."""

from alembic import op

revision = "0017"
down_revision = "0016"

WORD = 30 * 86_400
"""Seconds."""


def upgrade() -> None:
    """What came of a token that an admin issued lasts as long as that does; this knows no other login."""
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
