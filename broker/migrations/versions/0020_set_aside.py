"""Transfers whose rate was not measured are set aside: they are shown, and no forecast rests on them.

Of what a task gathered from several servers, the time that a source was busy was taken to be a millisecond where all
had come at one moment. And no interface has 800 Gbit/s, whoever says so.
"""

import time

import sqlalchemy as sa
from alembic import op

revision = "0020"
down_revision = "0019"

TELLING = 1 << 20
"""Bytes from which on a rate was learnt."""
FLOOR = 0.001001
"""Seconds: the least that was reported, and what rounding adds to it."""
FASTEST = 1e11
UNMEASURED, IMPOSSIBLE = "its busy time was not measured", "no interface is as fast"
OF_TASKS = "task.%.%.%.%"
"""Keys of what tasks gathered; those of copies between two servers have one part less."""

of = sa.table(
    "observations",
    *(sa.column(name) for name in ("subject", "ended", "started", "bytes", "busy_seconds", "outcome", "set_aside")),
)
keys = sa.table("observation_keys", *map(sa.column, ("subject", "key", "ended")))
audit = sa.table("audit", *map(sa.column, ("at", "subject", "action", "thing")))


def upgrade() -> None:
    op.add_column("observations", sa.Column("set_aside", sa.Text))
    if op.get_bind().dialect.name == "postgresql":  # of tables that it knows nothing of it joins each row with each
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
