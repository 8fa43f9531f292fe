"""What reports are made from: sums kept as data arrive, each forecast beside what came of it, and decisions.

Sums are of transfers as `observations` has them, up to `pairs.rolled_id`; scores up to `pairs.scored_id`. Days and
weeks are counted from the epoch (UTC), a week from a Thursday.
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

from broker.schema.base import ID, METADATA, MOMENT, TOLD
from broker.schema.history import pairs

__all__ = ["accuracy", "decisions", "probes_wanted", "regrets", "scores", "traces", "traffic"]

OF_TASK = text("task_id IS NOT NULL")

traffic = Table(
    "traffic",
    METADATA,
    Column("day", Integer, primary_key=True),
    Column("pair_id", ForeignKey(pairs.c.id), primary_key=True),
    Column("size_class", Integer, primary_key=True),
    Column("subject", Text, primary_key=True, info=TOLD),
    Column("transfers", BigInteger, nullable=False),
    Column("failures", BigInteger, nullable=False),  # of them: failed or corrupt
    Column("bytes", BigInteger, nullable=False),
    Column("busy_seconds", Double, nullable=False),
    Column("setups", BigInteger, nullable=False),  # of them: those whose set-up time is known
    Column("setup_seconds", Double, nullable=False),
    Column("newest_end", MOMENT, nullable=False),
    Index(None, "pair_id", "size_class", "subject"),
    Index(None, "subject", "day"),
    sqlite_with_rowid=False,
)
"""What was moved, by day, pair, class of sizes, and who moved it."""

scores = Table(
    "scores",
    METADATA,
    Column("observation_id", BigInteger, primary_key=True),
    Column("pair_id", ForeignKey(pairs.c.id), nullable=False),
    Column("size_class", Integer, nullable=False),
    Column("subject", Text, nullable=False, info=TOLD),
    Column("started", MOMENT, nullable=False),
    Column("ended", MOMENT, nullable=False),
    Column("bytes", BigInteger, nullable=False),
    Column("rate", Double, nullable=False),  # what came of it, bytes per second
    Column("setup_seconds", Double),
    Column("forecaster", Text, nullable=False),  # the one in charge
    Column("leader", Text, nullable=False),  # whose word weighed most with it
    Column("given", Boolean, nullable=False),  # somebody was told so before; else it was replayed from what was known
    Column("p10", Double, nullable=False),
    Column("p50", Double, nullable=False),
    Column("p90", Double, nullable=False),
    Column("panel", Text, nullable=False),  # JSON: p10, p50 and p90 of forecasters that are compared, by their names
    Index(None, "pair_id", "ended"),
    Index(None, "pair_id", "size_class", "ended"),
    Index(None, "subject", "ended"),
    Index(None, "ended"),
)
"""Each transfer that went well beside what was to be expected of it when it began."""

accuracy = Table(
    "accuracy",
    METADATA,
    Column("week", Integer, primary_key=True),
    Column("pair_id", BigInteger, primary_key=True),  # 0: all pairs together
    Column("size_class", Integer, primary_key=True),
    Column("forecaster", Text, primary_key=True),  # "in charge": whoever was
    Column("transfers", BigInteger, nullable=False),
    Column("log_errors", Double, nullable=False),  # sum of log(forecast / actual)
    Column("absolute_log_errors", Double, nullable=False),
    Column("squared_errors", Double, nullable=False),  # of (p - a) / min(p, a), each at most 10
    Column("close", BigInteger, nullable=False),  # within 15 %
    Column("below", BigInteger, nullable=False),  # actual less than p10
    Column("above", BigInteger, nullable=False),  # actual more than p90
    Column("widths", Double, nullable=False),  # sum of log(p90 / p10)
    Column("errors", Text, nullable=False),  # JSON, of pair 0: how many were off by which step (predictors.tally)
    Index(None, "pair_id", "week"),
    sqlite_with_rowid=False,
)
"""How far forecasters were off, by week, pair and class of sizes."""

decisions = Table(
    "decisions",
    METADATA,
    Column("id", ID, primary_key=True),
    Column("at", MOMENT, nullable=False),
    Column("subject", Text, nullable=False, info=TOLD),
    Column("key", Text, nullable=False),  # the reporter's own: reported again, it is the same
    Column("kind", Text, nullable=False),  # download, copy, collect
    Column("thing", Text, nullable=False),  # dataset or file
    Column("sink", Text, nullable=False),
    Column("bytes", BigInteger, nullable=False),
    Column("moved", BigInteger, nullable=False),  # of them: those that were not there before
    Column("strategy", Text, nullable=False),
    Column("rationale", Text, nullable=False),
    Column("outcome", Text, nullable=False),  # ok, failed
    Column("error", Text),
    Column("seconds", Double, nullable=False),  # that it took
    Column("fetch_seconds", Double, nullable=False),  # of them: until the last byte was there
    Column("best_seconds", Double),  # with the best shares in hindsight; NULL: nobody can say
    Column("planned_seconds", Double),  # with the shares that were planned, at the rates that came
    Column("single_seconds", Double),  # from the best single source in hindsight
    Column("unknown", Integer, nullable=False),  # candidates of which nobody can say what they would have done
    Column("task_id", Text),
    Column("work_id", BigInteger),
    Column("sources", Text, nullable=False),  # the names of the candidates, as history has them
    UniqueConstraint("subject", "key"),
    Index(None, "at", "id"),
    Index(None, "subject", "at", "id"),
    Index("ix_decisions_task", "task_id", sqlite_where=OF_TASK, postgresql_where=OF_TASK),
)
"""Which replicas were chosen for what, why, and what came of it."""

traces = Table(
    "traces",
    METADATA,
    Column("decision_id", ForeignKey(decisions.c.id, ondelete="CASCADE"), primary_key=True),
    Column("sources", Text, nullable=False),  # JSON: models.decisions.Part of each candidate
    Column("ranges", Text, nullable=False),  # JSON: the best shares, how many ranges there were, models.decisions.Range
)
"""The long part of decisions: apart, so that what one searches is short."""

regrets = Table(
    "regrets",
    METADATA,
    Column("week", Integer, primary_key=True),
    Column("subject", Text, primary_key=True, info=TOLD),
    Column("source", Text, primary_key=True),  # empty: all of a decision together
    Column("sink", Text, primary_key=True),
    Column("strategy", Text, primary_key=True),
    Column("decisions", BigInteger, nullable=False),  # those of which the best is known
    Column("bytes", BigInteger, nullable=False),  # that it delivered
    Column("planned_bytes", BigInteger, nullable=False),  # that it was to deliver, where that was planned
    Column("best_bytes", Double, nullable=False),  # that it should have delivered, where others were planned
    Column("seconds", Double, nullable=False),
    Column("best_seconds", Double, nullable=False),
    Column("single_seconds", Double, nullable=False),
    Column("planned", BigInteger, nullable=False),  # of them: those of which it is known what the plan would have taken
    Column("prediction_seconds", Double, nullable=False),  # of these, lost by plans; of a source, by waiting for it
    Column("scheme_seconds", Double, nullable=False),  # of these, lost by the scheme: less than 0 where it mended plans
    sqlite_with_rowid=False,
)
"""What decisions cost, by week, whose they were, source, sink and strategy."""

probes_wanted = Table(
    "probes_wanted",
    METADATA,
    Column("source", Text, primary_key=True),  # names of endpoints
    Column("sink", Text, primary_key=True),
    Column("subject", Text, nullable=False, info=TOLD),
    Column("asked_at", MOMENT, nullable=False),
)
"""Ways that somebody wants measured; they go before those that the broker finds by itself."""
