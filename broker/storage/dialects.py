"""Case-insensitive search for literal text in columns."""

from typing import Any

from sqlalchemy import ColumnElement, Table, func, literal
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.ext.asyncio import AsyncConnection

__all__ = ["ALWAYS", "contains", "insert"]


def contains(column: ColumnElement[str], text: str) -> ColumnElement[bool]:
    """Return a condition for columns that contain this text, in any case; no character of it is a wildcard."""
    escaped = text.lower().replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
    return func.lower(column).like(f"%{escaped}%", escape="\\")


ALWAYS = literal(1) == literal(1)
"""A true condition: SQLite needs a WHERE between SELECT and ON CONFLICT, or it reads ON as part of a join."""


def insert(connection: AsyncConnection, table: Table) -> Any:
    """Return an INSERT that has `on_conflict_do_update` and `on_conflict_do_nothing`."""
    return (sqlite if connection.dialect.name == "sqlite" else postgresql).insert(table)
