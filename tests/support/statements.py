"""A cache of compiled SQL statements for all engines of a process, so that not each test compiles its broker's.

SQLAlchemy caches compiled statements by engine and dialect object. Here all engines share a cache, and dialect objects
of one class count as equal, which is right if their servers have the same version.
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
    """A mixin that makes dialects of one class equal, so that their engines share compiled statements."""

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other)

    def __hash__(self) -> int:
        return hash(type(self))

    @classmethod
    def engine_created(cls, engine: Engine) -> None:
        engine.update_execution_options(compiled_cache=COMPILED)


class SharedSQLite(_Alike, SQLiteDialect_aiosqlite):
    """The SQLite dialect of the broker, with shared statements."""

    supports_statement_cache = True


class SharedPostgreSQL(_Alike, PGDialectAsync_psycopg):
    """The PostgreSQL dialect of the broker, with shared statements."""

    supports_statement_cache = True


class Psycopg(PGDialect_psycopg):
    """The synchronous dialect of psycopg, from which SQLAlchemy gets the asynchronous one."""

    supports_statement_cache = True

    @classmethod
    def get_async_dialect_cls(cls, url: Any) -> type[SharedPostgreSQL]:
        return SharedPostgreSQL


def share() -> None:
    """Register the dialects, so that all engines created from now on share compiled statements."""
    registry.register("sqlite.aiosqlite", __name__, SharedSQLite.__name__)
    registry.register("postgresql.psycopg", __name__, Psycopg.__name__)
