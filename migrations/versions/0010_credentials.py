"""Servers and directories where a credential may be used, from existing collections; permission to delegate."""

from urllib.parse import quote

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"

PORTS = {"ftp": 21, "gsiftp": 2811}


def upgrade() -> None:
    op.add_column("endpoints", sa.Column("delegate", sa.Boolean, nullable=False, server_default=sa.false()))
    places = op.create_table(
        "credential_places",
        sa.Column("credential", sa.Text, nullable=False),
        sa.Column("url", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("credential", "url", name="pk_credential_places"),
    )
    rows = op.get_bind().execute(
        sa.text(
            "SELECT c.credential, e.scheme, e.host, e.port, e.prefix, c.base FROM collections c "
            "JOIN endpoints e ON e.id = c.endpoint_id WHERE c.credential <> '' AND e.scheme IN ('ftp', 'gsiftp')"
        )
    )
    found = {
        (credential, f"{scheme}://{host}:{port or PORTS[scheme]}{quote(prefix.rstrip('/') + base)}")
        for credential, scheme, host, port, prefix, base in rows
    }
    if found:
        op.bulk_insert(places, [{"credential": credential, "url": url} for credential, url in sorted(found)])
