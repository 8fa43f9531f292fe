"""What transfers achieved, and what was expected of them."""

from sqlalchemy import BigInteger, Column, Double, ForeignKey, Index, Integer, Table, Text, UniqueConstraint, text

from broker.schema.base import ID, METADATA, MOMENT, TOLD

__all__ = ["BADLY", "asides", "forecasts", "observation_keys", "observations", "pairs", "voices"]

BADLY = text("outcome IN ('failed', 'corrupt')")
"""What is no success. Who asks for it in these words finds it by an index."""

SET_ASIDE = text("set_aside IS NOT NULL")

pairs = Table(
    "pairs",
    METADATA,
    Column("id", ID, primary_key=True),
    Column("source", Text, nullable=False),
    Column("sink", Text, nullable=False),
    Column("direction", Text, nullable=False),
    Column("observations", BigInteger, nullable=False),
    Column("newest_id", BigInteger, nullable=False),
    Column("newest_end", MOMENT, nullable=False),
    Column("rolled_id", BigInteger, nullable=False, server_default="0"),  # so far `traffic` has counted
    Column("scored_id", BigInteger, nullable=False, server_default="0"),  # so far forecasts have been scored
    UniqueConstraint("source", "sink", "direction"),
)
"""Each way that bytes went, with what is needed to notice that there is something new about it.

Who adds observations of a pair locks its row first: so a pair's observations are numbered in the order in which they
can be seen, and "what has a greater number than I know" misses none.
"""

voices = Table(
    "voices",
    METADATA,
    Column("pair_id", ForeignKey(pairs.c.id), primary_key=True),
    Column("subject", Text, primary_key=True, info=TOLD),
    Column("first_id", BigInteger, nullable=False),
    Column("newest_id", BigInteger, nullable=False),
    sqlite_with_rowid=False,
)
"""Who has reported transfers of a pair, with the numbers of the first and the newest."""

asides = Table(
    "asides",
    METADATA,
    Column("subject", Text, primary_key=True, info=TOLD),
    Column("at", MOMENT, nullable=False),
    Column("by", Text, nullable=False, info=TOLD),
    sqlite_with_rowid=False,
)
"""Subjects whose reports an admin has set aside: forecasts and states of replicas are as if they had said nothing."""

observation_keys = Table(
    "observation_keys",
    METADATA,
    Column("subject", Text, primary_key=True, info=TOLD),
    Column("key", Text, primary_key=True),
    Column("ended", MOMENT, nullable=False),
    Index(None, "ended"),
    sqlite_with_rowid=False,
)
"""Who reported what: apart from the observations, since those are partitioned by another column."""

observations = Table(
    "observations",
    METADATA,
    Column("id", ID, primary_key=True),
    Column("ended", MOMENT, nullable=False),
    Column("started", MOMENT, nullable=False),
    Column("pair_id", ForeignKey(pairs.c.id), nullable=False),
    Column("bytes", BigInteger, nullable=False),
    Column("busy_seconds", Double),
    Column("setup_seconds", Double),
    Column("ranges", Integer, nullable=False),
    Column("streams", Integer, nullable=False),
    Column("concurrency", Integer, nullable=False),
    Column("file_class", Text, nullable=False),
    Column("outcome", Text, nullable=False),
    Column("error", Text),
    Column("subject", Text, nullable=False, info=TOLD),
    Column("forecast_id", BigInteger),  # what was expected of it, if anybody had asked
    Column("set_aside", Text),  # why it is known to be wrong: it is shown, and no forecast rests on it
    Index(None, "pair_id", "ended"),
    Index(None, "pair_id", "id"),
    Index("ix_observations_pair_id_subject_ended", "pair_id", "subject", "ended"),
    Index("ix_observations_badly", "ended", sqlite_where=BADLY, postgresql_where=BADLY),
    Index("ix_observations_set_aside", "id", sqlite_where=SET_ASIDE, postgresql_where=SET_ASIDE),
    sqlite_autoincrement=True,  # no number twice, even after the newest were forgotten
)
"""On PostgreSQL the key is (id, ended), and the table is partitioned by month of `ended`."""

forecasts = Table(
    "forecasts",
    METADATA,
    Column("id", ID, primary_key=True),
    Column("pair_id", ForeignKey(pairs.c.id), nullable=False),
    Column("size_class", Integer, nullable=False),
    Column("forecaster", Text, nullable=False),
    Column("newest_id", BigInteger, nullable=False),  # the state it was in: what it had seen of the pair
    Column("made_at", MOMENT, nullable=False),
    Column("bytes", BigInteger),
    Column("p10", Double, nullable=False),
    Column("p50", Double, nullable=False),
    Column("p90", Double, nullable=False),
    Column("setup_seconds", Double),
    Column("observations", Integer, nullable=False),
    Column("reason", Text, nullable=False),
    Column("leader", Text, nullable=False, server_default=""),  # whose word weighed most with it
    UniqueConstraint("pair_id", "size_class", "forecaster", "newest_id"),
    Index(None, "pair_id", "size_class", "made_at"),
)
