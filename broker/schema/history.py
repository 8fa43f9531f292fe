"""Observations of transfers, and the forecasts for them."""

from sqlalchemy import BigInteger, Column, Double, ForeignKey, Index, Integer, Table, Text, UniqueConstraint, text

from broker.schema.base import ACTOR, ID, METADATA, MOMENT
from broker.schema.catalogue import depots

__all__ = [
    "BADLY",
    "depot_legs",
    "forecasts",
    "ignored_subjects",
    "observation_keys",
    "observations",
    "pairs",
    "reporters",
    "route_measurements",
]

BADLY = text("outcome IN ('failed', 'corrupt')")
"""The condition for failures. SQLite uses the index only if a query has exactly this text."""

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
    Column("rolled_id", BigInteger, nullable=False, server_default="0"),  # newest observation counted in `traffic`
    Column("scored_id", BigInteger, nullable=False, server_default="0"),  # newest observation with a score
    UniqueConstraint("source", "sink", "direction"),
)
"""Links (source, sink, direction) with transfers, and the progress of the jobs that process their observations.

A transaction that adds observations of a link locks its row first. So a link's observations become visible in the order
of their numbers, and a query for numbers above the last seen one misses none.
"""

reporters = Table(
    "reporters",
    METADATA,
    Column("pair_id", ForeignKey(pairs.c.id), primary_key=True),
    Column("subject", Text, primary_key=True, info=ACTOR),
    Column("first_id", BigInteger, nullable=False),
    Column("newest_id", BigInteger, nullable=False),
    sqlite_with_rowid=False,
)
"""Subjects that reported transfers of a link, with their first and newest observation."""

ignored_subjects = Table(
    "ignored_subjects",
    METADATA,
    Column("subject", Text, primary_key=True, info=ACTOR),
    Column("at", MOMENT, nullable=False),
    Column("by", Text, nullable=False, info=ACTOR),
    sqlite_with_rowid=False,
)
"""Subjects whose reports do not influence forecasts or the states of replicas, because an admin decided so."""

route_measurements = Table(
    "route_measurements",
    METADATA,
    Column("id", ID, primary_key=True),
    Column("ended", MOMENT, nullable=False),
    Column("reporter", Text, nullable=False, info=ACTOR),
    Column("site", Text, nullable=False),  # of the reporter; empty if unknown
    Column("scheme", Text, nullable=False),
    Column("host", Text, nullable=False),
    Column("route", Text, nullable=False),  # depots, as for coget --via
    Column("bytes", BigInteger, nullable=False),
    Column("seconds", Double, nullable=False),  # in which it was busy
    Column("sessions", Integer, nullable=False),
    Column("opening_seconds", Double, nullable=False),
    Column("beginning", BigInteger, nullable=False),  # number of its first bytes
    Column("beginning_seconds", Double, nullable=False),
    Index(None, "host", "ended"),
    Index(None, "reporter", "ended"),
    Index(None, "ended"),
    UniqueConstraint("reporter", "host", "scheme", "route", "ended"),
)
"""Uses of routes over depots, and of direct ones beside them, in transfers of users."""

depot_legs = Table(
    "depot_legs",
    METADATA,
    Column("id", ID, primary_key=True),
    Column("depot_id", ForeignKey(depots.c.id, ondelete="CASCADE"), nullable=False),
    Column("host", Text, nullable=False),  # of the next hop
    Column("port", Integer, nullable=False),
    Column("ended", MOMENT, nullable=False),  # arrival of the report
    Column("sessions", Integer, nullable=False),
    Column("failures", Integer, nullable=False),
    Column("connect_seconds", Double),
    Column("round_trip", Double),
    Column("loss", Double),
    Column("rate", Double),
    Index(None, "depot_id", "host", "port", "ended"),
    Index(None, "ended"),
)
"""Connections of depots to next hops: a row for each report of a leg."""

observation_keys = Table(
    "observation_keys",
    METADATA,
    Column("subject", Text, primary_key=True, info=ACTOR),
    Column("key", Text, primary_key=True),
    Column("ended", MOMENT, nullable=False),
    Index(None, "ended"),
    sqlite_with_rowid=False,
)
"""Reporters' ids of observations; a unique index on `observations` would need `ended`, its partition key."""

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
    Column("subject", Text, nullable=False, info=ACTOR),
    Column("forecast_id", BigInteger),  # newest forecast before it began
    Column("set_aside", Text),  # reason why it is wrong; forecasts ignore it
    Index(None, "pair_id", "ended"),
    Index(None, "pair_id", "id"),
    Index("ix_observations_pair_id_subject_ended", "pair_id", "subject", "ended"),
    Index("ix_observations_badly", "ended", sqlite_where=BADLY, postgresql_where=BADLY),
    Index("ix_observations_set_aside", "id", sqlite_where=SET_ASIDE, postgresql_where=SET_ASIDE),
    sqlite_autoincrement=True,  # never reuses the number of a deleted row
)
"""Observations of transfers. On PostgreSQL the key is (id, ended), and the table is partitioned by month of `ended`."""

forecasts = Table(
    "forecasts",
    METADATA,
    Column("id", ID, primary_key=True),
    Column("pair_id", ForeignKey(pairs.c.id), nullable=False),
    Column("size_class", Integer, nullable=False),
    Column("forecaster", Text, nullable=False),
    Column("newest_id", BigInteger, nullable=False),  # newest observation of the link that it is based on
    Column("made_at", MOMENT, nullable=False),
    Column("bytes", BigInteger),
    Column("p10", Double, nullable=False),
    Column("p50", Double, nullable=False),
    Column("p90", Double, nullable=False),
    Column("setup_seconds", Double),
    Column("observations", Integer, nullable=False),
    Column("reason", Text, nullable=False),
    Column("leader", Text, nullable=False, server_default=""),  # forecaster with the largest weight in it
    UniqueConstraint("pair_id", "size_class", "forecaster", "newest_id"),
    Index(None, "pair_id", "size_class", "made_at"),
)
