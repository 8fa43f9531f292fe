"""Sites, endpoints, depots, datasets with their checksums, and replicas."""

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Double,
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    Integer,
    Table,
    Text,
    UniqueConstraint,
    false,
    text,
)

from broker.schema.base import ACTOR, HELD, ID, METADATA, MOMENT, NAME

__all__ = ["bad_replica_reports", "checksums", "datasets", "depots", "endpoints", "judgements", "replicas", "sites"]

sites = Table(
    "sites",
    METADATA,
    Column("id", ID, primary_key=True),
    Column("name", NAME, nullable=False, unique=True),
    Column("latitude", Double),
    Column("longitude", Double),
)

endpoints = Table(
    "endpoints",
    METADATA,
    Column("id", ID, primary_key=True),
    Column("name", NAME, nullable=False, unique=True),
    Column("site_id", ForeignKey(sites.c.id), nullable=False),
    Column("scheme", Text, nullable=False),
    Column("host", Text, nullable=False),
    Column("port", Integer),
    Column("prefix", Text, nullable=False),
    Column("read_priority", Integer, nullable=False),
    Column("write_priority", Integer, nullable=False),
    Column("capacity", Double),
    Column("max_streams", Integer),
    Column("latitude", Double),
    Column("longitude", Double),
    Column(
        "delegate", Boolean, nullable=False, server_default=false()
    ),  # whether it may get a limited proxy certificate
    Column("data_hosts", Text, nullable=False, server_default=""),  # separated by blanks
    Column("opened", Text, nullable=False, server_default=""),  # approval of a private address: "admin" or "upgrade"
    Column("moves", Integer, nullable=False, server_default="0"),  # counts changes of its address or directory
)

depots = Table(
    "depots",
    METADATA,
    Column("id", ID, primary_key=True),
    Column("name", NAME, nullable=False, unique=True),
    Column("site_id", ForeignKey(sites.c.id), nullable=False),
    Column("host", Text, nullable=False),
    Column("port", Integer, nullable=False),
    Column("secret", Text),  # shared with the depot; NULL: it takes no tickets
    Column("subject", Text, info=HELD),  # of the depot itself, which reports its legs and gets its table
)

datasets = Table(
    "datasets",
    METADATA,
    Column("id", ID, primary_key=True),
    Column("scope", NAME, nullable=False),
    Column("name", NAME, nullable=False),
    Column("size", BigInteger),
    Column("created_at", MOMENT, nullable=False),
    UniqueConstraint("scope", "name"),
)

checksums = Table(
    "checksums",
    METADATA,
    Column("dataset_id", ForeignKey(datasets.c.id, ondelete="CASCADE"), primary_key=True),
    Column("algorithm", Text, primary_key=True),
    Column("value", Text, nullable=False),
    sqlite_with_rowid=False,
)

replicas = Table(
    "replicas",
    METADATA,
    Column("dataset_id", ForeignKey(datasets.c.id, ondelete="CASCADE"), primary_key=True),
    Column("endpoint_id", ForeignKey(endpoints.c.id), primary_key=True),
    Column("path", Text),  # NULL: the dataset's name
    Column("state", Text, nullable=False),
    Column("verified_at", MOMENT),
    Column("changed_at", MOMENT, nullable=False),
    Column("reason", Text, nullable=False),
    Column("registered_by", Text, info=ACTOR),  # subject that registered or confirmed it; NULL: unknown
    Column("registered_as_admin", Boolean, nullable=False, server_default=false()),
    Column(
        "registered_moves", Integer, nullable=False, server_default="0"
    ),  # `moves` of its endpoint at the registration
    Index(
        "ix_replicas_wanting",
        "state",
        "dataset_id",
        sqlite_where=text("state <> 'AVAILABLE'"),
        postgresql_where=text("state <> 'AVAILABLE'"),
    ),
    Index(None, "endpoint_id"),
    sqlite_with_rowid=False,
)
"""The key begins with the dataset, so that all replicas of a dataset are stored together."""

REPLICA = (["dataset_id", "endpoint_id"], ["replicas.dataset_id", "replicas.endpoint_id"])

bad_replica_reports = Table(
    "bad_replica_reports",
    METADATA,
    Column("dataset_id", ID, primary_key=True),
    Column("endpoint_id", ID, primary_key=True),
    Column("subject", Text, primary_key=True, info=ACTOR),
    Column("at", MOMENT, nullable=False),
    Column("reason", Text, nullable=False),
    ForeignKeyConstraint(*REPLICA, ondelete="CASCADE"),
    Index(None, "subject"),
    sqlite_with_rowid=False,
)
"""Reports that a replica is bad, until a curator judges it."""

judgements = Table(
    "judgements",
    METADATA,
    Column("dataset_id", ID, primary_key=True),
    Column("endpoint_id", ID, primary_key=True),
    Column("by", Text, nullable=False, info=ACTOR),
    Column("at", MOMENT, nullable=False),
    ForeignKeyConstraint(*REPLICA, ondelete="CASCADE"),
    sqlite_with_rowid=False,
)
"""Replicas whose state was set by a curator."""
