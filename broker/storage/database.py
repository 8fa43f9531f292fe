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
"""Seconds to wait for another process that writes to the same SQLite file."""
GIVEN_BACK = 5.0
"""Seconds for which the end waits for connections that somebody still has."""
CONNECTIONS = 10
FROZEN, LONGEST_ALONE = 30, 600
"""Seconds after which PostgreSQL ends a transaction in which nothing is asked, and one that keeps others out."""
LOST = {
    "keepalives": 1,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 25_000,
}
"""How soon a connection to PostgreSQL is given up that carries nothing any more: libpq's seconds, and milliseconds."""
WRITES = "coget_writes"
UNDONE = ("40P01", "40001")
"""What PostgreSQL calls a deadlock, and what could not be put in an order: all of the transaction is undone."""
STOOD_STILL = "25P03"
"""What it calls a transaction that was ended for `FROZEN`."""
TRIES = 5
PAUSE = 0.05
"""Seconds before the second try, on average; twice as many before each that follows."""


def addressed(url: str) -> str:
    """The database's address as SQLAlchemy wants it for asynchronous use.

    :raises Invalid: when it is of no database that the broker knows

    >>> addressed("sqlite:////var/lib/coget/broker.sqlite")
    'sqlite+aiosqlite:////var/lib/coget/broker.sqlite'
    """
    scheme, slashes, rest = url.partition("://")
    drivers = {"sqlite": "sqlite+aiosqlite", "postgresql": "postgresql+psycopg", "postgres": "postgresql+psycopg"}
    driver = drivers.get(scheme.partition("+")[0])
    remedy = "use sqlite:///PATH or postgresql+psycopg://USER@HOST/NAME"
    if not slashes:  # it is not shown: it may be a password, if a file is named that has no more
        raise Invalid("the address of the database is no URL", remedy)
    if driver is None:
        raise Invalid(f"{scheme!r} is no database that the broker knows", remedy)
    address = f"{driver}://{rest}"
    try:
        make_url(address)
    except (ArgumentError, ValueError):  # these show what they take for a port, which may be of a password
        why = "the address of the database makes no sense"
        raise Invalid(why, f"{remedy}; write / : @ ? # in a password as %2F %3A %40 %3F %23") from None
    return address


def keep_private(url: str) -> None:
    """Make the file of a SQLite database for its owner only, or take away what others may of it and its WAL.

    SQLite gives what it makes beside a file the mode of that file. A file that cannot be made or changed is left: what
    is done next says why.
    """
    path = make_url(url).database if url.startswith("sqlite") else None
    if not path or path == ":memory:":
        return
    path = os.path.realpath(path)  # SQLite, too, puts the WAL beside what a link leads to
    with suppress(OSError):  # it is there; closing a descriptor of it would end locks that SQLite holds here
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    for each in (path, f"{path}-wal", f"{path}-shm", f"{path}-journal"):
        with suppress(OSError):
            mode = Path(each).stat().st_mode
            if stat.S_ISREG(mode) and mode & 0o077:
                Path(each).chmod(0o600)


class Undone(Unavailable):
    """The database has undone the transaction in favour of another: done again as a whole, it may succeed."""


def retried(work: Callable[Given, Awaitable[Result]]) -> Callable[Given, Awaitable[Result]]:
    """Work that is one transaction, done again when the database undid it in favour of another.

    For all work that writes: it has to have no effect but through the database before its transaction ends.
    """

    @wraps(work)
    async def again(*args: Given.args, **kwargs: Given.kwargs) -> Result:
        for turn in range(TRIES - 1):
            try:
                return await work(*args, **kwargs)
            except Undone as error:
                log.info("%s is done again: %s", work.__qualname__, error.message)
                await asyncio.sleep(2 * PAUSE * 2**turn * random.random())
        return await work(*args, **kwargs)

    return again


class Database:
    """One database; a transaction at a time for each task that asks.

    Who reads sees one state of it; who writes is the only writer on SQLite, so that no transaction fails for having
    read before it wrote.

    :param url: as `addressed` makes it
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
        """Its address, without password; a query can have one, too."""
        return make_url(self.url).set(query={}).render_as_string(hide_password=True)

    @asynccontextmanager
    async def read(self) -> AsyncIterator[AsyncConnection]:
        """A transaction that only reads."""
        async with self._mended(), self._engine.connect() as connection:
            yield connection

    @asynccontextmanager
    async def write(self) -> AsyncIterator[AsyncConnection]:
        """A transaction that is kept when the block ends well, and then survives what may come.

        It is begun in functions that are `retried`.
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
        """Keep other processes out of blocks for the same work; on SQLite one process serves."""
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
                f"the database cannot be used now: {_said(error)}", "try again in a moment"
            ) from error

    async def ready(self) -> None:
        """Ask it something; :raises Unavailable: when it does not answer."""
        async with self.read() as connection:
            await connection.execute(text("SELECT 1"))

    async def close(self) -> None:
        """Close all connections; those that somebody has, when they are given back, as cancelled work does soon.

        One that came back to a pool that is disposed of would stay open.
        """
        pool = cast(AsyncAdaptedQueuePool, self._engine.pool)
        with suppress(TimeoutError):
            async with asyncio.timeout(GIVEN_BACK):
                while pool.checkedout():  # noqa: ASYNC110 - the pool has no event
                    await asyncio.sleep(0.01)
        await self._engine.dispose()


def _said(error: DBAPIError | NoFreeConnectionError) -> str:
    said = error.orig if isinstance(error, DBAPIError) else "all connections are in use"
    return str(said).partition("\n")[0]


def _prepare(connection: Any, _: object) -> None:
    """SQLite as a server's database: readers beside a writer, what is acknowledged is on disk, foreign keys hold."""
    connection.isolation_level = None  # transactions begin where we say so
    cursor = connection.cursor()
    for pragma in ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON", f"busy_timeout={WAIT * 1000}"):
        cursor.execute(f"PRAGMA {pragma}")
    cursor.execute("PRAGMA cache_size=-2048")  # 2 MiB of each connection; the file itself is in the system's cache
    cursor.close()


class _Closing(sqlite3.Connection):
    """Lets go of the file when it is closed in the middle of a statement, as when whoever asked was cancelled.

    SQLite keeps the lock of such a connection until the statement is finalized, which is whenever memory is cleared.
    """

    def close(self) -> None:
        with suppress(sqlite3.Error):
            self.rollback()
        super().close()


def _hurry(connection: Any, _: object) -> None:
    """PostgreSQL compiles what it takes for long queries, for longer than any of ours takes.

    It waits without end for a process that stands still in a transaction, and whose locks others wait for.
    """
    cursor = connection.cursor()
    cursor.execute("SET jit = off")
    cursor.execute(f"SET idle_in_transaction_session_timeout = '{FROZEN}s'")
    cursor.close()
    connection.commit()  # or it would be undone with the first transaction


def _begin(connection: Connection) -> None:
    writes = connection.get_execution_options().get(WRITES)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")
