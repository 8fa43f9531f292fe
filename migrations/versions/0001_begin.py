"""The first tables: access, catalogue, history, forecasts.

On PostgreSQL, observations are partitioned by month; `broker.storage.months` creates the partitions when needed. All
other tables are the same as in `broker.schema` at this version.
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0001"
down_revision = None

ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
NAME = sa.Text().with_variant(postgresql.TEXT(collation="C"), "postgresql")


def upgrade() -> None:
    _access()
    _places()
    _datasets()
    _history()


def _access() -> None:
    op.create_table(
        "tokens",
        sa.Column("id", ID, primary_key=True),
        sa.Column("hash", sa.Text, nullable=False),
        sa.Column("subject", sa.Text, nullable=False),
        sa.Column("role", sa.Text, nullable=False),
        sa.Column("site", sa.Text, nullable=False),
        sa.Column("created_at", sa.Double, nullable=False),
        sa.Column("expires_at", sa.Double),
        sa.Column("revoked_at", sa.Double),
        sa.UniqueConstraint("hash", name="uq_tokens_hash"),
    )
    op.create_table(
        "audit",
        sa.Column("id", ID, primary_key=True),
        sa.Column("at", sa.Double, nullable=False),
        sa.Column("subject", sa.Text, nullable=False),
        sa.Column("action", sa.Text, nullable=False),
        sa.Column("thing", sa.Text, nullable=False),
    )
    op.create_index("ix_audit_at", "audit", ["at"])


def _places() -> None:
    op.create_table(
        "sites",
        sa.Column("id", ID, primary_key=True),
        sa.Column("name", NAME, nullable=False),
        sa.Column("latitude", sa.Double),
        sa.Column("longitude", sa.Double),
        sa.UniqueConstraint("name", name="uq_sites_name"),
    )
    op.create_table(
        "endpoints",
        sa.Column("id", ID, primary_key=True),
        sa.Column("name", NAME, nullable=False),
        sa.Column("site_id", ID, sa.ForeignKey("sites.id", name="fk_endpoints_site_id"), nullable=False),
        sa.Column("scheme", sa.Text, nullable=False),
        sa.Column("host", sa.Text, nullable=False),
        sa.Column("port", sa.Integer),
        sa.Column("prefix", sa.Text, nullable=False),
        sa.Column("read_priority", sa.Integer, nullable=False),
        sa.Column("write_priority", sa.Integer, nullable=False),
        sa.Column("capacity", sa.Double),
        sa.Column("max_streams", sa.Integer),
        sa.Column("latitude", sa.Double),
        sa.Column("longitude", sa.Double),
        sa.UniqueConstraint("name", name="uq_endpoints_name"),
    )


def _datasets() -> None:
    op.create_table(
        "datasets",
        sa.Column("id", ID, primary_key=True),
        sa.Column("scope", NAME, nullable=False),
        sa.Column("name", NAME, nullable=False),
        sa.Column("size", sa.BigInteger),
        sa.Column("created_at", sa.Double, nullable=False),
        sa.UniqueConstraint("scope", "name", name="uq_datasets_scope_name"),
    )
    dataset = sa.ForeignKey("datasets.id", name="fk_checksums_dataset_id", ondelete="CASCADE")
    op.create_table(
        "checksums",
        sa.Column("dataset_id", ID, dataset, primary_key=True),
        sa.Column("algorithm", sa.Text, primary_key=True),
        sa.Column("value", sa.Text, nullable=False),
        sqlite_with_rowid=False,
    )
    dataset = sa.ForeignKey("datasets.id", name="fk_replicas_dataset_id", ondelete="CASCADE")
    endpoint = sa.ForeignKey("endpoints.id", name="fk_replicas_endpoint_id")
    op.create_table(
        "replicas",
        sa.Column("dataset_id", ID, dataset, primary_key=True),
        sa.Column("endpoint_id", ID, endpoint, primary_key=True),
        sa.Column("path", sa.Text),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("verified_at", sa.Double),
        sa.Column("changed_at", sa.Double, nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sqlite_with_rowid=False,
    )
    wanting = sa.text("state <> 'AVAILABLE'")
    op.create_index(
        "ix_replicas_wanting", "replicas", ["state", "dataset_id"], sqlite_where=wanting, postgresql_where=wanting
    )
    op.create_index("ix_replicas_endpoint_id", "replicas", ["endpoint_id"])


def _history() -> None:
    op.create_table(
        "pairs",
        sa.Column("id", ID, primary_key=True),
        sa.Column("source", sa.Text, nullable=False),
        sa.Column("sink", sa.Text, nullable=False),
        sa.Column("direction", sa.Text, nullable=False),
        sa.Column("observations", sa.BigInteger, nullable=False),
        sa.Column("newest_id", sa.BigInteger, nullable=False),
        sa.Column("newest_end", sa.Double, nullable=False),
        sa.UniqueConstraint("source", "sink", "direction", name="uq_pairs_source_sink_direction"),
    )
    op.create_table(
        "observation_keys",
        sa.Column("subject", sa.Text, primary_key=True),
        sa.Column("key", sa.Text, primary_key=True),
        sa.Column("ended", sa.Double, nullable=False),
        sqlite_with_rowid=False,
    )
    op.create_index("ix_observation_keys_ended", "observation_keys", ["ended"])
    _observations()
    op.create_index("ix_observations_pair_id_ended", "observations", ["pair_id", "ended"])
    op.create_index("ix_observations_pair_id_id", "observations", ["pair_id", "id"])
    op.create_table(
        "forecasts",
        sa.Column("id", ID, primary_key=True),
        sa.Column("pair_id", ID, sa.ForeignKey("pairs.id", name="fk_forecasts_pair_id"), nullable=False),
        sa.Column("size_class", sa.Integer, nullable=False),
        sa.Column("forecaster", sa.Text, nullable=False),
        sa.Column("newest_id", sa.BigInteger, nullable=False),
        sa.Column("made_at", sa.Double, nullable=False),
        sa.Column("bytes", sa.BigInteger),
        sa.Column("p10", sa.Double, nullable=False),
        sa.Column("p50", sa.Double, nullable=False),
        sa.Column("p90", sa.Double, nullable=False),
        sa.Column("setup_seconds", sa.Double),
        sa.Column("observations", sa.Integer, nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.UniqueConstraint(
            "pair_id", "size_class", "forecaster", "newest_id",
            name="uq_forecasts_pair_id_size_class_forecaster_newest_id",
        ),
    )  # fmt: skip
    op.create_index("ix_forecasts_pair_id_size_class_made_at", "forecasts", ["pair_id", "size_class", "made_at"])


def _observations() -> None:
    columns = (
        sa.Column("ended", sa.Double, nullable=False),
        sa.Column("started", sa.Double, nullable=False),
        sa.Column("pair_id", ID, sa.ForeignKey("pairs.id", name="fk_observations_pair_id"), nullable=False),
        sa.Column("bytes", sa.BigInteger, nullable=False),
        sa.Column("busy_seconds", sa.Double),
        sa.Column("setup_seconds", sa.Double),
        sa.Column("ranges", sa.Integer, nullable=False),
        sa.Column("streams", sa.Integer, nullable=False),
        sa.Column("concurrency", sa.Integer, nullable=False),
        sa.Column("file_class", sa.Text, nullable=False),
        sa.Column("outcome", sa.Text, nullable=False),
        sa.Column("error", sa.Text),
        sa.Column("subject", sa.Text, nullable=False),
        sa.Column("forecast_id", sa.BigInteger),
    )
    if op.get_bind().dialect.name == "sqlite":
        number = sa.Column("id", ID, primary_key=True)
        op.create_table("observations", number, *columns, sqlite_autoincrement=True)
        return
    op.execute("CREATE SEQUENCE observations_id_seq")
    number = sa.Column("id", sa.BigInteger, server_default=sa.text("nextval('observations_id_seq')"), nullable=False)
    key = sa.PrimaryKeyConstraint("id", "ended", name="pk_observations")
    op.create_table("observations", number, *columns, key, postgresql_partition_by="RANGE (ended)")
    op.execute("ALTER SEQUENCE observations_id_seq OWNED BY observations.id")
