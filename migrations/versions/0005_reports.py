"""Sums, scores and decisions for reports, and the last observation of each link that they include."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"

ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
OF_TASK = sa.text("task_id IS NOT NULL")
BADLY = sa.text("outcome IN ('failed', 'corrupt')")
FAILED = sa.text("status = 'FAILED'")


def upgrade() -> None:
    for name in ("rolled_id", "scored_id"):
        op.add_column("pairs", sa.Column(name, sa.BigInteger, nullable=False, server_default="0"))
    op.create_index("ix_observations_badly", "observations", ["ended"], sqlite_where=BADLY, postgresql_where=BADLY)
    op.create_index("ix_tasks_failed", "tasks", ["completed_at"], sqlite_where=FAILED, postgresql_where=FAILED)
    op.add_column("forecasts", sa.Column("leader", sa.Text, nullable=False, server_default=""))
    _traffic()
    _scores()
    _accuracy()
    _decisions()
    _regrets()
    op.create_table(
        "probes_wanted",
        sa.Column("source", sa.Text, nullable=False),
        sa.Column("sink", sa.Text, nullable=False),
        sa.Column("subject", sa.Text, nullable=False),
        sa.Column("asked_at", sa.Double, nullable=False),
        sa.PrimaryKeyConstraint("source", "sink", name="pk_probes_wanted"),
    )
    _pages()


def _pages() -> None:
    """Add the OAuth2 client of the broker's web pages (`models.oauth.PAGES`)."""
    clients = sa.table(
        "clients",
        *(sa.column(name, sa.Text) for name in ("id", "name", "made_by")),
        sa.column("created_at", sa.Double),
    )
    number = "53b7061e-fa9c-49a8-a531-3da4cb4714c9"
    op.bulk_insert(clients, [{"id": number, "name": "Reports", "made_by": "coget", "created_at": 0.0}])


def _traffic() -> None:
    op.create_table(
        "traffic",
        sa.Column("day", sa.Integer, nullable=False),
        sa.Column("pair_id", ID, nullable=False),
        sa.Column("size_class", sa.Integer, nullable=False),
        sa.Column("subject", sa.Text, nullable=False),
        *(sa.Column(name, sa.BigInteger, nullable=False) for name in ("transfers", "failures", "bytes")),
        sa.Column("busy_seconds", sa.Double, nullable=False),
        sa.Column("setups", sa.BigInteger, nullable=False),
        sa.Column("setup_seconds", sa.Double, nullable=False),
        sa.Column("newest_end", sa.Double, nullable=False),
        sa.PrimaryKeyConstraint("day", "pair_id", "size_class", "subject", name="pk_traffic"),
        sa.ForeignKeyConstraint(["pair_id"], ["pairs.id"], name="fk_traffic_pair_id"),
        sqlite_with_rowid=False,
    )
    op.create_index("ix_traffic_pair_id_size_class_subject", "traffic", ["pair_id", "size_class", "subject"])
    op.create_index("ix_traffic_subject_day", "traffic", ["subject", "day"])


def _scores() -> None:
    op.create_table(
        "scores",
        sa.Column("observation_id", sa.BigInteger, nullable=False),
        sa.Column("pair_id", ID, nullable=False),
        sa.Column("size_class", sa.Integer, nullable=False),
        sa.Column("subject", sa.Text, nullable=False),
        sa.Column("started", sa.Double, nullable=False),
        sa.Column("ended", sa.Double, nullable=False),
        sa.Column("bytes", sa.BigInteger, nullable=False),
        sa.Column("rate", sa.Double, nullable=False),
        sa.Column("setup_seconds", sa.Double),
        sa.Column("forecaster", sa.Text, nullable=False),
        sa.Column("leader", sa.Text, nullable=False),
        sa.Column("given", sa.Boolean, nullable=False),
        *(sa.Column(name, sa.Double, nullable=False) for name in ("p10", "p50", "p90")),
        sa.Column("panel", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("observation_id", name="pk_scores"),
        sa.ForeignKeyConstraint(["pair_id"], ["pairs.id"], name="fk_scores_pair_id"),
    )
    op.create_index("ix_scores_pair_id_ended", "scores", ["pair_id", "ended"])
    op.create_index("ix_scores_pair_id_size_class_ended", "scores", ["pair_id", "size_class", "ended"])
    op.create_index("ix_scores_subject_ended", "scores", ["subject", "ended"])
    op.create_index("ix_scores_ended", "scores", ["ended"])


def _accuracy() -> None:
    op.create_table(
        "accuracy",
        sa.Column("week", sa.Integer, nullable=False),
        sa.Column("pair_id", sa.BigInteger, nullable=False),
        sa.Column("size_class", sa.Integer, nullable=False),
        sa.Column("forecaster", sa.Text, nullable=False),
        sa.Column("transfers", sa.BigInteger, nullable=False),
        sa.Column("log_errors", sa.Double, nullable=False),
        sa.Column("absolute_log_errors", sa.Double, nullable=False),
        sa.Column("squared_errors", sa.Double, nullable=False),
        *(sa.Column(name, sa.BigInteger, nullable=False) for name in ("close", "below", "above")),
        sa.Column("widths", sa.Double, nullable=False),
        sa.Column("errors", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("week", "pair_id", "size_class", "forecaster", name="pk_accuracy"),
        sqlite_with_rowid=False,
    )
    op.create_index("ix_accuracy_pair_id_week", "accuracy", ["pair_id", "week"])


def _regrets() -> None:
    op.create_table(
        "regrets",
        sa.Column("week", sa.Integer, nullable=False),
        *(sa.Column(name, sa.Text, nullable=False) for name in ("subject", "source", "sink", "strategy")),
        *(sa.Column(name, sa.BigInteger, nullable=False) for name in ("decisions", "bytes", "planned_bytes")),
        *(sa.Column(name, sa.Double, nullable=False) for name in ("best_bytes", "seconds", "best_seconds")),
        sa.Column("single_seconds", sa.Double, nullable=False),
        sa.Column("planned", sa.BigInteger, nullable=False),
        *(sa.Column(name, sa.Double, nullable=False) for name in ("prediction_seconds", "scheme_seconds")),
        sa.PrimaryKeyConstraint("week", "subject", "source", "sink", "strategy", name="pk_regrets"),
        sqlite_with_rowid=False,
    )


def _decisions() -> None:
    op.create_table(
        "decisions",
        sa.Column("id", ID, nullable=False),
        sa.Column("at", sa.Double, nullable=False),
        *(sa.Column(name, sa.Text, nullable=False) for name in ("subject", "key", "kind", "thing", "sink")),
        *(sa.Column(name, sa.BigInteger, nullable=False) for name in ("bytes", "moved")),
        *(sa.Column(name, sa.Text, nullable=False) for name in ("strategy", "rationale", "outcome")),
        sa.Column("error", sa.Text),
        *(sa.Column(name, sa.Double, nullable=False) for name in ("seconds", "fetch_seconds")),
        *(sa.Column(name, sa.Double) for name in ("best_seconds", "planned_seconds", "single_seconds")),
        sa.Column("unknown", sa.Integer, nullable=False),
        sa.Column("task_id", sa.Text),
        sa.Column("work_id", sa.BigInteger),
        sa.Column("sources", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_decisions"),
        sa.UniqueConstraint("subject", "key", name="uq_decisions_subject_key"),
    )
    op.create_table(
        "traces",
        sa.Column("decision_id", ID, nullable=False),
        *(sa.Column(name, sa.Text, nullable=False) for name in ("sources", "ranges")),
        sa.PrimaryKeyConstraint("decision_id", name="pk_traces"),
        sa.ForeignKeyConstraint(["decision_id"], ["decisions.id"], name="fk_traces_decision_id", ondelete="CASCADE"),
    )
    op.create_index("ix_decisions_at_id", "decisions", ["at", "id"])
    op.create_index("ix_decisions_subject_at_id", "decisions", ["subject", "at", "id"])
    op.create_index("ix_decisions_task", "decisions", ["task_id"], sqlite_where=OF_TASK, postgresql_where=OF_TASK)
