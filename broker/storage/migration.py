"""Version checks and upgrades of a database's tables."""

import fcntl
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import alembic.command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, create_engine, event, inspect, make_url, text
from sqlalchemy.exc import OperationalError

import broker
from broker.errors import Invalid, Unavailable
from broker.storage.database import keep_private

__all__ = ["check", "differences", "upgrade"]

WAIT = 30
"""Seconds to wait while another process writes to the same SQLite file."""


def upgrade(url: str, namers: Sequence[tuple[str, str | None]] | None = None) -> bool:
    """Upgrade the database to this broker's version of the tables; create them if there are none.

    An upgrade is one transaction, so that it can be repeated if it was killed. A SQLite file is first copied to
    `FILE.before-VERSION`, where VERSION is this broker's.

    :param namers: `Settings.namers`; None if not given
    :returns: whether the tables were created
    :raises Invalid: when the tables are of a newer broker or of another program, or the upgrade needs `namers`
    """
    with _one_at_a_time(url):
        _keep_copy(url)
        return _upgrade(url, namers)


def _upgrade(url: str, namers: Sequence[tuple[str, str | None]] | None) -> bool:
    with _connected(url, "BEGIN IMMEDIATE") as connection:
        if (
            connection.dialect.name == "postgresql"
        ):  # if several processes start at once, the first one creates the tables
            connection.execute(text("SELECT pg_advisory_xact_lock(hashtext('coget upgrade'))"))
        before = _version(connection)
        empty = before is None and not inspect(connection).get_table_names()
        _refuse_strange(connection, before, empty)
        config = _config(connection)
        config.attributes["namers"] = namers
        alembic.command.upgrade(config, "head")
        return empty


def check(url: str) -> bool:
    """Return whether the database has tables.

    :raises Invalid: when they are not of this broker's version; the remedy names the command that upgrades them
    """
    with _connected(url) as connection:
        version = _version(connection)
        empty = version is None and not inspect(connection).get_table_names()
        _refuse_strange(connection, version, empty)
        if not empty and version != _scripts(connection).get_current_head():
            raise Invalid(
                f"the tables of the database are of version {version}, and this broker needs "
                f"{_scripts(connection).get_current_head()}",
                "back it up, then run: coget-broker upgrade --database URL, with the --config of serve if it has one",
            )
        return not empty


@contextmanager
def _one_at_a_time(url: str) -> Iterator[None]:
    """Let one process at a time upgrade SQLite files in a directory, since two would overwrite each other's copies."""
    path = make_url(url).database
    if not url.startswith("sqlite") or not path or path == ":memory:":
        yield
        return
    try:
        folder = os.open(Path(path).parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise Unavailable(f"cannot open the database: {error.strerror}", "check --database") from error
    try:
        with suppress(OSError):  # some file systems have no locks
            fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)


def _keep_copy(url: str) -> None:
    """Copy a SQLite file with tables of an older version, to a file with mode 0600."""
    path = make_url(url).database
    if not url.startswith("sqlite") or not path:
        return
    with _connected(url, "") as connection:  # VACUUM INTO works only outside transactions
        before, ours = _version(connection), _scripts(connection).get_current_head()
        if before is None or before == ours:
            return
        _refuse_strange(connection, before, empty=False)
        new = Path(f"{path}.before-{ours}.new")
        new.unlink(missing_ok=True)
        os.close(os.open(new, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        connection.exec_driver_sql("VACUUM INTO ?", (str(new),))
        new.replace(f"{path}.before-{ours}")


def differences(url: str) -> None:
    """Compare the tables with `broker.schema`, for tests.

    :raises alembic.util.CommandError: when they differ
    """
    with _connected(url) as connection:
        alembic.command.check(_config(connection))


def _refuse_strange(connection: Connection, version: str | None, empty: bool) -> None:
    known = {script.revision for script in _scripts(connection).walk_revisions()}
    if version is not None and version not in known:
        raise Invalid(
            f"the tables of the database are of version {version}, which this broker does not know",
            "use the broker version that made them, or a newer one",
        )
    if version is None and not empty:
        raise Invalid("the database has tables, but not the broker's", "choose an empty database")


@contextmanager
def _connected(url: str, begin: str = "BEGIN") -> Iterator[Connection]:
    """Open a connection with a transaction that is committed when the block ends without an error.

    :param begin: statement that begins it on SQLite, because Python's driver runs schema changes outside transactions
    """
    sqlite = url.startswith("sqlite")
    keep_private(url)
    engine = create_engine(url.replace("+aiosqlite", ""), connect_args={"timeout": WAIT} if sqlite else {})
    if sqlite:
        event.listen(engine, "connect", lambda connection, _: setattr(connection, "isolation_level", None))
        event.listen(engine, "begin", lambda connection: begin and connection.exec_driver_sql(begin))
    try:
        with engine.connect() as connection:
            yield connection
            connection.commit()
    except OperationalError as error:
        reason = str(error.orig).partition("\n")[0]
        raise Unavailable(
            f"cannot open the database: {reason}", "check --database, and that the database server is running"
        ) from error
    finally:
        engine.dispose()


def _versions() -> Path:
    """Return the directory of Alembic's scripts: inside the installed package, or beside it in a checkout."""
    package = Path(broker.__file__).parent
    installed = package / "migrations"
    return installed if (installed / "env.py").is_file() else package.parent / "migrations"


def _config(connection: Connection) -> Config:
    config = Config()
    config.set_main_option("script_location", str(_versions()))
    config.attributes["connection"] = connection
    return config


def _scripts(connection: Connection) -> ScriptDirectory:
    return ScriptDirectory.from_config(_config(connection))


def _version(connection: Connection) -> str | None:
    return MigrationContext.configure(connection).get_current_revision()
