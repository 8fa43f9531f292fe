"""SQL statements compiled once in a process: else each test compiles some hundred of them for its own broker.

SQLAlchemy keeps compiled statements for each engine, and tells them apart by dialect. Here engines share what they
compile, and the dialects of one kind count as the same one: their servers are of one version.
"""

from typing import Any

from sqlalchemy import Engine
from sqlalchemy.dialects import registry
from sqlalchemy.dialects.postgresql.psycopg import PGDialect_psycopg, PGDialectAsync_psycopg
from sqlalchemy.dialects.sqlite.aiosqlite import SQLiteDialect_aiosqlite
from sqlalchemy.util import LRUCache

__all__ = ["share"]

MOST = 2000
COMPILED: LRUCache[Any, Any] = LRUCache(MOST)


class _Alike:
    """Make a dialect equal to others of its class, so that their engines share compiled statements."""

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other)

    def __hash__(self) -> int:
        return hash(type(self))

    @classmethod
    def engine_created(cls, engine: Engine) -> None:
        engine.update_execution_options(compiled_cache=COMPILED)


class SharedSQLite(_Alike, SQLiteDialect_aiosqlite):
    """SQLite, as the broker uses it."""

    supports_statement_cache = True


class SharedPostgreSQL(_Alike, PGDialectAsync_psycopg):
    """PostgreSQL, as the broker uses it."""

    supports_statement_cache = True


class Psycopg(PGDialect_psycopg):
    """The library, of which SQLAlchemy asks for the asynchronous dialect."""

    supports_statement_cache = True

    @classmethod
    def get_async_dialect_cls(cls, url: Any) -> type[SharedPostgreSQL]:
        return SharedPostgreSQL


def share() -> None:
    """Let all engines created from now on share compiled statements."""
    registry.register("sqlite.aiosqlite", __name__, SharedSQLite.__name__)
    registry.register("postgresql.psycopg", __name__, Psycopg.__name__)
