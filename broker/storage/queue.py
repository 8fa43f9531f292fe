"""Procrastinate's queue: a schema of its own beside the broker's tables, one for each version of Procrastinate.

The queue only wakes workers; the tables of tasks are the truth. So nothing is lost with a queue, and another version of
Procrastinate begins a new one.
"""

from importlib.metadata import version
from typing import Any

from procrastinate.schema import SchemaManager
from sqlalchemy import Connection, make_url, text

__all__ = ["SCHEMA", "arguments", "prepare"]

SCHEMA = f"coget_queue_{version('procrastinate').replace('.', '_')}"


def prepare(connection: Connection) -> None:
    """Create the queue if it does not exist; on PostgreSQL only."""
    if connection.dialect.name != "postgresql":
        return
    known = text("SELECT 1 FROM information_schema.schemata WHERE schema_name = :name")
    if connection.execute(known, {"name": SCHEMA}).scalar() is None:
        connection.execute(text(f"CREATE SCHEMA {SCHEMA}"))
        connection.execute(text(f"SET LOCAL search_path TO {SCHEMA}"))
        driver: Any = connection.connection.dbapi_connection  # SQLAlchemy would look for parameters
        driver.execute(SchemaManager.get_schema())
        connection.execute(text("SET LOCAL search_path TO DEFAULT"))


def arguments(url: str) -> dict[str, Any]:
    """Return the arguments with which psycopg's pool connects to the queue in a database.

    >>> sorted(arguments("postgresql+psycopg://ann@db.example/broker"))
    ['conninfo', 'kwargs']
    """
    plain = make_url(url).set(drivername="postgresql").render_as_string(hide_password=False)
    return {"conninfo": plain, "kwargs": {"options": f"-c search_path={SCHEMA}"}}
