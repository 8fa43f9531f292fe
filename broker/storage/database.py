"""The connection to the database, SQLite or PostgreSQL, and its transactions."""

import asyncio
import logging
import os
import random
import sqlite3
import stat
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import wraps
from pathlib import Path
from typing import Any, ParamSpec, TypeVar, cast

from sqlalchemy import Connection, event, make_url, text
from sqlalchemy.exc import ArgumentError, DBAPIError, InterfaceError, InternalError, OperationalError
from sqlalchemy.exc import TimeoutError as NoFreeConnectionError
from sqlalchemy.ext.asyncio import AsyncConnection, create_async_engine
from sqlalchemy.pool import AsyncAdaptedQueuePool

from broker.errors import Invalid, Unavailable

__all__ = ["Database", "addressed", "keep_private", "retried"]

log = logging.getLogger(__name__)
Given = ParamSpec("Given")
Result = TypeVar("Result")

WAIT = 30
"""Seconds to wait while another process writes to the same SQLite file."""
GIVEN_BACK = 5.0
"""Seconds that `close` waits for connections in use."""
CONNECTIONS = 10
FROZEN, LONGEST_ALONE = 30, 600
"""Seconds after which PostgreSQL ends an idle transaction, and an idle transaction of `alone`."""
LOST = {
    "keepalives": 1,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 25_000,
}
"""Timeouts of libpq that detect dead connections: keepalives in seconds, the user timeout in milliseconds."""
WRITES = "coget_writes"
UNDONE = ("40P01", "40001")
"""PostgreSQL's codes for deadlocks and serialization failures, which roll back the transaction."""
STOOD_STILL = "25P03"
"""PostgreSQL's code for a transaction that was ended because it was idle for `FROZEN` seconds."""
TRIES = 5
PAUSE = 0.05
"""Average seconds before the first retry; doubled before each later one."""


def addressed(url: str) -> str:
    """Return the database's URL in the form that SQLAlchemy needs for asynchronous use.

    :raises Invalid: when the URL is malformed, or the broker does not support this kind of database

    >>> addressed("sqlite:////var/lib/coget/broker.sqlite")
    'sqlite+aiosqlite:////var/lib/coget/broker.sqlite'
    """
    scheme, slashes, rest = url.partition("://")
    drivers = {"sqlite": "sqlite+aiosqlite", "postgresql": "postgresql+psycopg", "postgres": "postgresql+psycopg"}
    driver = drivers.get(scheme.partition("+")[0])
    remedy = "use sqlite:///PATH or postgresql+psycopg://USER@HOST/NAME"
    if not slashes:  # not shown: it may be a password, read from a file
        raise Invalid("the address of the database is not a URL", remedy)
    if driver is None:
        raise Invalid(f"{scheme!r} is not a database that the broker knows", remedy)
    address = f"{driver}://{rest}"
    try:
        make_url(address)
    except (ArgumentError, ValueError):  # these errors quote the port, which may be part of a password
        why = "the address of the database is invalid"
        raise Invalid(why, f"{remedy}; write / : @ ? # in a password as %2F %3A %40 %3F %23") from None
    return address


def keep_private(url: str) -> None:
    """Create the file of a SQLite database with mode 0600, or remove others' permissions from it and its WAL.

    SQLite creates the files beside a database with the mode of the database. Errors are ignored: the next access to the
    file reports them.
    """
    path = make_url(url).database if url.startswith("sqlite") else None
    if not path or path == ":memory:":
        return
    path = os.path.realpath(path)  # SQLite puts the WAL beside the target of a symbolic link
    with suppress(OSError):  # O_EXCL, since closing a descriptor of an existing file would drop SQLite's locks
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    for each in (path, f"{path}-wal", f"{path}-shm", f"{path}-journal"):
        with suppress(OSError):
            mode = Path(each).stat().st_mode
            if stat.S_ISREG(mode) and mode & 0o077:
                Path(each).chmod(0o600)


class Undone(Unavailable):
    """A transaction that the database rolled back because of another one; a retry may succeed."""


def retried(work: Callable[Given, Awaitable[Result]]) -> Callable[Given, Awaitable[Result]]:
    """Decorate a function that runs one transaction, to retry it when the database rolls it back.

    All functions that write use this decorator. Before their transaction ends, they must have no effect outside the
    database.
    """

    @wraps(work)
    async def again(*args: Given.args, **kwargs: Given.kwargs) -> Result:
        for attempt in range(TRIES - 1):
            try:
                return await work(*args, **kwargs)
            except Undone as error:
                log.info("retrying %s: %s", work.__qualname__, error.message)
                await asyncio.sleep(2 * PAUSE * 2**attempt * random.random())
        return await work(*args, **kwargs)

    return again


class Database:
    """One database, with one transaction at a time for each asyncio task.

    Readers see a consistent state. On SQLite, there is one writer at a time, so that no transaction fails because
    another one wrote after its first read.
    :param url: URL as returned by `addressed`
    """

    def __init__(self, url: str) -> None:
        self.url = url
        self.sqlite = url.startswith("sqlite")
        keep_private(url)
        options: dict[str, Any] = {"connect_args": {"factory": _Closing} if self.sqlite else LOST}
        if not self.sqlite:
            options["pool_pre_ping"] = True
        self._engine = create_async_engine(url, pool_size=CONNECTIONS, max_overflow=CONNECTIONS, **options)
        self._writing = asyncio.Lock()
        if self.sqlite:
            event.listen(self._engine.sync_engine, "connect", _prepare)
            event.listen(self._engine.sync_engine, "begin", _begin)
        else:
            event.listen(self._engine.sync_engine, "connect", _hurry)

    @property
    def shown(self) -> str:
        """The database's URL without the password, and without the query, which may also contain one."""
        return make_url(self.url).set(query={}).render_as_string(hide_password=True)

    @asynccontextmanager
    async def read(self) -> AsyncIterator[AsyncConnection]:
        """Begin a transaction that only reads."""
        async with self._mended(), self._engine.connect() as connection:
            yield connection

    @asynccontextmanager
    async def write(self) -> AsyncIterator[AsyncConnection]:
        """Begin a transaction that is durably committed when the block ends without an error.

        Use it only in functions that are `retried`.
        """
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self._mended())
            if self.sqlite:
                await stack.enter_async_context(self._writing)
            connection = await stack.enter_async_context(self._engine.connect())
            await connection.execution_options(**{WRITES: True})
            await stack.enter_async_context(connection.begin())
            yield connection

    @asynccontextmanager
    async def alone(self, work: str) -> AsyncIterator[None]:
        """Hold a lock named `work` that excludes other processes; SQLite needs none, since only one process serves."""
        async with AsyncExitStack() as stack:
            if not self.sqlite:
                connection = await stack.enter_async_context(self.read())
                await connection.execute(text(f"SET LOCAL idle_in_transaction_session_timeout = '{LONGEST_ALONE}s'"))
                locked = text("SELECT pg_advisory_xact_lock(hashtext(:work))")
                await connection.execute(locked, {"work": f"coget {work}"})
            yield

    @asynccontextmanager
    async def _mended(self) -> AsyncIterator[None]:
        try:
            yield
        except (OperationalError, InterfaceError, InternalError, NoFreeConnectionError) as error:
            state = getattr(getattr(error, "orig", None), "sqlstate", None)
            if isinstance(error, InternalError) and state != STOOD_STILL:
                raise
            raise (Undone if state in UNDONE else Unavailable)(
                f"the database cannot be used now: {_reason(error)}", "try again in a moment"
            ) from error

    async def ready(self) -> None:
        """Check that the database answers a query. :raises Unavailable: when it does not"""
        async with self.read() as connection:
            await connection.execute(text("SELECT 1"))

    async def close(self) -> None:
        """Wait up to `GIVEN_BACK` seconds for connections in use, and close all connections.

        Without the wait, a connection that cancelled work returns to the disposed pool would stay open.
        """
        pool = cast(AsyncAdaptedQueuePool, self._engine.pool)
        with suppress(TimeoutError):
            async with asyncio.timeout(GIVEN_BACK):
                while pool.checkedout():  # noqa: ASYNC110 - the pool has no event
                    await asyncio.sleep(0.01)
        await self._engine.dispose()


def _reason(error: DBAPIError | NoFreeConnectionError) -> str:
    reason = error.orig if isinstance(error, DBAPIError) else "all connections are in use"
    return str(reason).partition("\n")[0]


def _prepare(connection: Any, _: object) -> None:
    """Configure a SQLite connection: concurrent readers (WAL), durable commits, enforced foreign keys."""
    connection.isolation_level = None  # `_begin` starts transactions
    cursor = connection.cursor()
    for pragma in ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON", f"busy_timeout={WAIT * 1000}"):
        cursor.execute(f"PRAGMA {pragma}")
    cursor.execute("PRAGMA cache_size=-2048")  # 2 MiB per connection; the operating system caches the file
    cursor.close()
    # SQLite's own lower() changes only ASCII letters
    connection.create_function("lower", 1, lambda text: text and str(text).lower(), deterministic=True)


class _Closing(sqlite3.Connection):
    """A SQLite connection that releases its lock even if it is closed during a statement, such as after a cancellation.

    Otherwise SQLite would hold the lock until garbage collection finalizes the statement.
    """

    def close(self) -> None:
        with suppress(sqlite3.Error):
            self.rollback()
        super().close()


def _hurry(connection: Any, _: object) -> None:
    """Turn off PostgreSQL's JIT and limit idle transactions.

    JIT compilation takes longer than any of the broker's queries. Without the limit, a process that hangs in a
    transaction would hold its locks forever.
    """
    cursor = connection.cursor()
    cursor.execute("SET jit = off")
    cursor.execute(f"SET idle_in_transaction_session_timeout = '{FROZEN}s'")
    cursor.close()
    connection.commit()  # otherwise a rollback of the first transaction would undo the settings


def _begin(connection: Connection) -> None:
    writes = connection.get_execution_options().get(WRITES)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")
