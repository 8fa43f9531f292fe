"""Tables for reports: sums of traffic, scores of forecasts, decisions, and requested measurements.

Sums include the `observations` up to `pairs.rolled_id`; scores exist up to `pairs.scored_id`. Days and weeks are
numbered from the epoch (UTC); weeks begin on Thursdays.
"""

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Double,
    ForeignKey,
    Index,
    Integer,
    Table,
    Text,
    UniqueConstraint,
    text,
)

from broker.schema.base import ACTOR, ID, METADATA, MOMENT
from broker.schema.history import pairs

__all__ = ["accuracy", "decisions", "probes_wanted", "regrets", "scores", "traces", "traffic"]

OF_TASK = text("task_id IS NOT NULL")

traffic = Table(
    "traffic",
    METADATA,
    Column("day", Integer, primary_key=True),
    Column("pair_id", ForeignKey(pairs.c.id), primary_key=True),
    Column("size_class", Integer, primary_key=True),
    Column("subject", Text, primary_key=True, info=ACTOR),
    Column("transfers", BigInteger, nullable=False),
    Column("failures", BigInteger, nullable=False),  # transfers that failed or were corrupt
    Column("bytes", BigInteger, nullable=False),
    Column("busy_seconds", Double, nullable=False),
    Column("setups", BigInteger, nullable=False),  # transfers with a known set-up time
    Column("setup_seconds", Double, nullable=False),
    Column("newest_end", MOMENT, nullable=False),
    Index(None, "pair_id", "size_class", "subject"),
    Index(None, "subject", "day"),
    sqlite_with_rowid=False,
)
"""Sums of traffic by day, link, size class and subject."""

scores = Table(
    "scores",
    METADATA,
    Column("observation_id", BigInteger, primary_key=True),
    Column("pair_id", ForeignKey(pairs.c.id), nullable=False),
    Column("size_class", Integer, nullable=False),
    Column("subject", Text, nullable=False, info=ACTOR),
    Column("started", MOMENT, nullable=False),
    Column("ended", MOMENT, nullable=False),
    Column("bytes", BigInteger, nullable=False),
    Column("rate", Double, nullable=False),  # actual rate, in bytes per second
    Column("setup_seconds", Double),
    Column("forecaster", Text, nullable=False),  # forecaster in charge
    Column("leader", Text, nullable=False),  # forecaster with the largest weight in it
    Column("given", Boolean, nullable=False),  # whether a client got it; otherwise it was replayed
    Column("p10", Double, nullable=False),
    Column("p50", Double, nullable=False),
    Column("p90", Double, nullable=False),
    Column("panel", Text, nullable=False),  # JSON: p10, p50 and p90 of each compared forecaster, by name
    Index(None, "pair_id", "ended"),
    Index(None, "pair_id", "size_class", "ended"),
    Index(None, "subject", "ended"),
    Index(None, "ended"),
)
"""Successful transfers, each with the forecast at its start."""

accuracy = Table(
    "accuracy",
    METADATA,
    Column("week", Integer, primary_key=True),
    Column("pair_id", BigInteger, primary_key=True),  # 0: all links together
    Column("size_class", Integer, primary_key=True),
    Column("forecaster", Text, primary_key=True),  # "in charge": the forecasters in charge
    Column("transfers", BigInteger, nullable=False),
    Column("log_errors", Double, nullable=False),  # sum of log(forecast / actual)
    Column("absolute_log_errors", Double, nullable=False),
    Column("squared_errors", Double, nullable=False),  # sum of squares of (p - a) / min(p, a), each up to 10
    Column("close", BigInteger, nullable=False),  # within 15 %
    Column("below", BigInteger, nullable=False),  # actual rate below p10
    Column("above", BigInteger, nullable=False),  # actual rate above p90
    Column("widths", Double, nullable=False),  # sum of log(p90 / p10)
    Column("errors", Text, nullable=False),  # JSON, for link 0: histogram of errors (predictors.tally)
    Index(None, "pair_id", "week"),
    sqlite_with_rowid=False,
)
"""Errors of forecasters by week, link and size class."""

decisions = Table(
    "decisions",
    METADATA,
    Column("id", ID, primary_key=True),
    Column("at", MOMENT, nullable=False),
    Column("subject", Text, nullable=False, info=ACTOR),
    Column("key", Text, nullable=False),  # reporter's id; another report with it is ignored
    Column("kind", Text, nullable=False),  # download, copy, collect
    Column("thing", Text, nullable=False),  # dataset or file
    Column("sink", Text, nullable=False),
    Column("bytes", BigInteger, nullable=False),
    Column("moved", BigInteger, nullable=False),  # bytes that were not at the sink before
    Column("strategy", Text, nullable=False),
    Column("rationale", Text, nullable=False),
    Column("outcome", Text, nullable=False),  # ok, failed
    Column("error", Text),
    Column("seconds", Double, nullable=False),  # total duration
    Column("fetch_seconds", Double, nullable=False),  # until the last byte arrived
    Column("best_seconds", Double),  # with the best shares in hindsight; NULL: unknown
    Column("planned_seconds", Double),  # with the planned shares, at the actual rates
    Column("single_seconds", Double),  # from the best single source in hindsight
    Column("unknown", Integer, nullable=False),  # number of candidates whose rate is unknown
    Column("task_id", Text),
    Column("work_id", BigInteger),
    Column("sources", Text, nullable=False),  # names of the candidates, as in the history
    UniqueConstraint("subject", "key"),
    Index(None, "at", "id"),
    Index(None, "subject", "at", "id"),
    Index("ix_decisions_task", "task_id", sqlite_where=OF_TASK, postgresql_where=OF_TASK),
)
"""Decisions: the replicas that were chosen, the reasons, and the results."""

traces = Table(
    "traces",
    METADATA,
    Column("decision_id", ForeignKey(decisions.c.id, ondelete="CASCADE"), primary_key=True),
    Column("sources", Text, nullable=False),  # JSON: models.decisions.SourcePart of each candidate
    Column("ranges", Text, nullable=False),  # JSON: best shares, number of ranges, and models.decisions.Range of each
)
"""The details of decisions, in a separate table so that searches read short rows."""

regrets = Table(
    "regrets",
    METADATA,
    Column("week", Integer, primary_key=True),
    Column("subject", Text, primary_key=True, info=ACTOR),
    Column("source", Text, primary_key=True),  # empty: all sources of a decision together
    Column("sink", Text, primary_key=True),
    Column("strategy", Text, primary_key=True),
    Column("decisions", BigInteger, nullable=False),  # decisions whose best result is known
    Column("bytes", BigInteger, nullable=False),  # bytes delivered
    Column("planned_bytes", BigInteger, nullable=False),  # bytes of its planned shares
    Column("best_bytes", Double, nullable=False),  # bytes of its best shares in hindsight
    Column("seconds", Double, nullable=False),
    Column("best_seconds", Double, nullable=False),
    Column("single_seconds", Double, nullable=False),
    Column("planned", BigInteger, nullable=False),  # decisions with a known duration of the plan
    Column("prediction_seconds", Double, nullable=False),  # seconds lost by plans; for a source, by waiting for it
    Column("scheme_seconds", Double, nullable=False),  # seconds lost by the strategy; below 0: faster than the plans
    sqlite_with_rowid=False,
)
"""Costs of decisions by week, subject, source, sink and strategy."""

probes_wanted = Table(
    "probes_wanted",
    METADATA,
    Column("source", Text, primary_key=True),  # names of endpoints
    Column("sink", Text, primary_key=True),
    Column("subject", Text, nullable=False, info=ACTOR),
    Column("asked_at", MOMENT, nullable=False),
)
"""Links that users want measured; the broker measures them first."""
