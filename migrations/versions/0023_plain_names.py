"""New names of the tables `voices`, `asides` and `doubts`: `reporters`, `ignored_subjects` and `bad_replica_reports`.

The rows are copied into new tables, because SQLite can rename neither an index nor a constraint.
"""

import sqlalchemy as sa
from alembic import op

revision = "0023"
down_revision = "0022"

ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
REPLICA = (["dataset_id", "endpoint_id"], ["replicas.dataset_id", "replicas.endpoint_id"])


def upgrade() -> None:
    reporters = op.create_table(
        "reporters",
        sa.Column("pair_id", ID, sa.ForeignKey("pairs.id", name="fk_reporters_pair_id"), primary_key=True),
        sa.Column("subject", sa.Text, primary_key=True),
        sa.Column("first_id", sa.BigInteger, nullable=False),
        sa.Column("newest_id", sa.BigInteger, nullable=False),
        sqlite_with_rowid=False,
    )
    ignored_subjects = op.create_table(
        "ignored_subjects",
        sa.Column("subject", sa.Text, primary_key=True),
        sa.Column("at", sa.Double, nullable=False),
        sa.Column("by", sa.Text, nullable=False),
        sqlite_with_rowid=False,
    )
    bad_replica_reports = op.create_table(
        "bad_replica_reports",
        sa.Column("dataset_id", ID, primary_key=True),
        sa.Column("endpoint_id", ID, primary_key=True),
        sa.Column("subject", sa.Text, primary_key=True),
        sa.Column("at", sa.Double, nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.ForeignKeyConstraint(*REPLICA, ondelete="CASCADE", name="fk_bad_replica_reports_dataset_id"),
        sqlite_with_rowid=False,
    )
    for was, table in (("voices", reporters), ("asides", ignored_subjects), ("doubts", bad_replica_reports)):
        names = table.columns.keys()
        op.execute(table.insert().from_select(names, sa.select(*map(sa.column, names)).select_from(sa.table(was))))
        op.drop_table(was)
    op.create_index("ix_bad_replica_reports_subject", "bad_replica_reports", ["subject"])
