"""Reporters of each link, subjects whose reports are ignored, and reports about replicas."""

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"

ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
REPLICA = (["dataset_id", "endpoint_id"], ["replicas.dataset_id", "replicas.endpoint_id"])


def upgrade() -> None:
    op.create_table(
        "voices",
        sa.Column("pair_id", ID, sa.ForeignKey("pairs.id", name="fk_voices_pair_id"), primary_key=True),
        sa.Column("subject", sa.Text, primary_key=True),
        sa.Column("first_id", sa.BigInteger, nullable=False),
        sa.Column("newest_id", sa.BigInteger, nullable=False),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "asides",
        sa.Column("subject", sa.Text, primary_key=True),
        sa.Column("at", sa.Double, nullable=False),
        sa.Column("by", sa.Text, nullable=False),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "doubts",
        *_replica(),
        sa.Column("subject", sa.Text, primary_key=True),
        sa.Column("at", sa.Double, nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.ForeignKeyConstraint(*REPLICA, ondelete="CASCADE", name="fk_doubts_dataset_id"),
        sqlite_with_rowid=False,
    )
    op.create_index("ix_doubts_subject", "doubts", ["subject"])
    op.create_table(
        "judgements",
        *_replica(),
        sa.Column("by", sa.Text, nullable=False),
        sa.Column("at", sa.Double, nullable=False),
        sa.ForeignKeyConstraint(*REPLICA, ondelete="CASCADE", name="fk_judgements_dataset_id"),
        sqlite_with_rowid=False,
    )
    op.create_index("ix_observations_pair_id_subject_ended", "observations", ["pair_id", "subject", "ended"])
    op.execute(
        "INSERT INTO voices (pair_id, subject, first_id, newest_id) "
        "SELECT pair_id, subject, min(id), max(id) FROM observations GROUP BY pair_id, subject"
    )
    op.execute(  # who set the state is unknown; it may be a curator, so reports must not change it
        "INSERT INTO judgements (dataset_id, endpoint_id, by, at) "
        "SELECT dataset_id, endpoint_id, '', changed_at FROM replicas WHERE state <> 'AVAILABLE'"
    )


def _replica() -> tuple[sa.Column[int], sa.Column[int]]:
    return sa.Column("dataset_id", ID, primary_key=True), sa.Column("endpoint_id", ID, primary_key=True)
