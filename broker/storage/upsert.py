"""INSERT ... ON CONFLICT: both databases support it, but SQLAlchemy has it apart for each."""

from typing import Any

from sqlalchemy import Table, literal
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.ext.asyncio import AsyncConnection

__all__ = ["ALWAYS", "insert"]

ALWAYS = literal(1) == literal(1)
"""A true condition: SQLite needs a WHERE between SELECT and ON CONFLICT, or it reads ON as part of a join."""


def insert(connection: AsyncConnection, table: Table) -> Any:
    """Return an INSERT that has `on_conflict_do_update` and `on_conflict_do_nothing`."""
    return (sqlite if connection.dialect.name == "sqlite" else postgresql).insert(table)
