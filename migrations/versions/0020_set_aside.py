"""A column for the reason why a transfer is set aside: it is listed, but no forecast uses it.

Existing transfers without a measured rate are set aside. For files that a task fetched from several servers, a source's
busy time was reported as 1 ms if all its bytes arrived at one moment. Transfers with rates above 800 Gbit/s are set
aside, too, since no network interface reaches them.
"""

import time

import sqlalchemy as sa
from alembic import op

revision = "0020"
down_revision = "0019"

TELLING = 1 << 20
"""Bytes from which a transfer's rate was used for forecasts."""
FLOOR = 0.001001
"""Seconds: the shortest busy time that was reported, with an allowance for rounding."""
FASTEST = 1e11
UNMEASURED, IMPOSSIBLE = "its busy time was not measured", "no interface is as fast"
OF_TASKS = "task.%.%.%.%"
"""Pattern of the keys of files from several servers; keys of copies between two servers have one part fewer."""

of = sa.table(
    "observations",
    *(sa.column(name) for name in ("subject", "ended", "started", "bytes", "busy_seconds", "outcome", "set_aside")),
)
keys = sa.table("observation_keys", *map(sa.column, ("subject", "key", "ended")))
audit = sa.table("audit", *map(sa.column, ("at", "subject", "action", "thing")))


def upgrade() -> None:
    op.add_column("observations", sa.Column("set_aside", sa.Text))
    if op.get_bind().dialect.name == "postgresql":  # without statistics, PostgreSQL would compare all pairs of rows
        op.execute("ANALYZE observations, observation_keys")
    telling = sa.and_(of.c.outcome.in_(("ok", "slow")), of.c.bytes >= TELLING, of.c.set_aside.is_(None))
    gathered = sa.exists().where(keys.c.subject == of.c.subject, keys.c.ended == of.c.ended, keys.c.key.like(OF_TASKS))
    unmeasured = sa.and_(telling, of.c.busy_seconds < FLOOR, gathered)
    took = sa.func.coalesce(of.c.busy_seconds, of.c.ended - of.c.started)
    impossible = sa.and_(telling, of.c.bytes > FASTEST * took)
    for which, why in ((unmeasured, UNMEASURED), (impossible, IMPOSSIBLE)):
        done = op.get_bind().execute(sa.update(of).where(which).values(set_aside=why))
        if done.rowcount:
            thing = f"{done.rowcount}: {why}"
            op.bulk_insert(
                audit,
                [{"at": time.time(), "subject": "coget-broker", "action": "set transfers aside", "thing": thing}],
            )
    where = sa.text("set_aside IS NOT NULL")
    op.create_index("ix_observations_set_aside", "observations", ["id"], sqlite_where=where, postgresql_where=where)
