"""Alembic's environment: it runs the versions in one transaction, on the connection that it is given."""

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
    transactional_ddl=True,  # works on SQLite if the connection begins its transactions itself
)
with context.begin_transaction():
    context.run_migrations()
