"""INSERT ... ON CONFLICT, which both databases know and SQLAlchemy keeps apart."""

from typing import Any

from sqlalchemy import Table, literal
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.ext.asyncio import AsyncConnection

__all__ = ["ALWAYS", "insert"]

ALWAYS = literal(1) == literal(1)
"""SQLite needs a WHERE between SELECT and ON CONFLICT, or it takes the ON for a join's."""


def insert(connection: AsyncConnection, table: Table) -> Any:
    """An insert that has `on_conflict_do_update` and `on_conflict_do_nothing`."""
    return (sqlite if connection.dialect.name == "sqlite" else postgresql).insert(table)
