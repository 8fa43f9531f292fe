"""Which version of the tables a database has, and how it gets to ours."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import alembic.command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, create_engine, inspect, text
from sqlalchemy.exc import OperationalError

from broker import migrations
from broker.errors import Invalid, Unavailable
from broker.storage.queue import prepare

__all__ = ["check", "differences", "upgrade"]


def upgrade(url: str) -> bool:
    """Bring the database to our version of the tables; make them where there are none.

    :returns: whether there were none
    :raises Invalid: when its tables are of a newer broker, or somebody else's
    """
    with _connected(url) as connection:
        if connection.dialect.name == "postgresql":  # of several that start at once the first makes them
            connection.execute(text("SELECT pg_advisory_xact_lock(hashtext('coget upgrade'))"))
        before = _version(connection)
        empty = before is None and not inspect(connection).get_table_names()
        _refuse_strange(connection, before, empty)
        alembic.command.upgrade(_config(connection), "head")
        prepare(connection)
        return empty


def check(url: str) -> bool:
    """Whether the database has tables at all.

    :raises Invalid: when they are not of our version, with the command that makes them so
    """
    with _connected(url) as connection:
        version = _version(connection)
        empty = version is None and not inspect(connection).get_table_names()
        _refuse_strange(connection, version, empty)
        if not empty and version != _scripts(connection).get_current_head():
            raise Invalid(
                f"the tables of the database are of version {version}, and this broker needs "
                f"{_scripts(connection).get_current_head()}",
                "back it up, then run: coget-broker upgrade --database URL",
            )
        return not empty


def differences(url: str) -> None:
    """:raises alembic.util.CommandError: when the tables are not what `broker.schema` says. For tests."""
    with _connected(url) as connection:
        alembic.command.check(_config(connection))


def _refuse_strange(connection: Connection, version: str | None, empty: bool) -> None:
    known = {script.revision for script in _scripts(connection).walk_revisions()}
    if version is not None and version not in known:
        raise Invalid(
            f"the tables of the database are of version {version}, which this broker does not know",
            "use the broker that made them, or a newer one",
        )
    if version is None and not empty:
        raise Invalid("the database has tables, but not the broker's", "name an empty database")


@contextmanager
def _connected(url: str) -> Iterator[Connection]:
    engine = create_engine(url.replace("+aiosqlite", ""))
    try:
        with engine.connect() as connection:
            yield connection
            connection.commit()
    except OperationalError as error:
        said = str(error.orig).partition("\n")[0]
        raise Unavailable(f"the database cannot be opened: {said}", "check --database, and that it runs") from error
    finally:
        engine.dispose()


def _config(connection: Connection) -> Config:
    config = Config()
    config.set_main_option("script_location", str(Path(migrations.__file__).parent))
    config.attributes["connection"] = connection
    return config


def _scripts(connection: Connection) -> ScriptDirectory:
    return ScriptDirectory.from_config(_config(connection))


def _version(connection: Connection) -> str | None:
    return MigrationContext.configure(connection).get_current_revision()
