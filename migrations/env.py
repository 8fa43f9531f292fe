"""Alembic's environment, which runs the versions in one transaction on the caller's connection."""

from alembic import context

from broker.schema import METADATA

PARTITIONS = "observations_"


def _ours(name: str | None, kind: str, _: object) -> bool:
    return not (kind == "table" and name is not None and name.startswith(PARTITIONS))


context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=METADATA,
    include_name=_ours,
    render_as_batch=True,
    transactional_ddl=True,  # on SQLite, the connection must begin its transactions itself
)
with context.begin_transaction():
    context.run_migrations()
