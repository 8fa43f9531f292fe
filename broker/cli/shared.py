"""Common parts of the `coget-broker` commands: options, and runners for code that uses the services."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click
from click.core import ParameterSource

from broker.config.settings import Settings
from broker.errors import BrokerError, Invalid
from coalloc.errors import UsageError
from coalloc.util.secret_files import secret_variable

if TYPE_CHECKING:
    from broker.factory import Factory
    from broker.services.auth.tokens import AccessTokens

__all__ = ["config_option", "database_option", "port_option", "with_services", "with_tokens"]

Result = TypeVar("Result")

VARIABLE = "COGET_BROKER_DATABASE"


def _database(context: click.Context, parameter: click.Parameter, value: str) -> str:
    """Return the database URL from the command line, else from the variable or the file named in VARIABLE_FILE.

    :raises Invalid: when both variables are set, or the file cannot be read
    """
    if context.get_parameter_source(str(parameter.name)) is ParameterSource.COMMANDLINE:
        return value
    try:
        return secret_variable(VARIABLE) or value
    except UsageError as error:
        raise Invalid(error.message, error.remedy) from None


database_option = click.option(
    "--database",
    default=Settings().database,
    show_default=True,
    envvar=VARIABLE,
    callback=_database,
    metavar="URL",
    help="Database: sqlite:///PATH or postgresql+psycopg://USER@HOST/NAME. Put a URL with a password into "
    f"a file, and name it in {VARIABLE}_FILE.",
)
config_option = click.option(
    "--config",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Configuration file (TOML): token issuers, identity providers, trusted proxies, notices, weekly reports, "
    "proxy certificates, and private networks that are allowed.",
)
port_option = click.option(
    "--port",
    default=8642,
    show_default=True,
    type=click.IntRange(0, 65535),
    metavar="PORT",
    help="Port to listen on; 0: any free port.",
)


def with_services(settings: Settings, work: "Callable[[Factory], Awaitable[Result]]") -> Result:
    """Run `work` with a factory of services for a database, and return its result.

    :raises BrokerError: when the database has no tables yet
    """
    from broker.factory import Factory

    _check_tables(settings.database)

    async def run() -> Result:
        factory = Factory.of(settings)
        try:
            return await work(factory)
        finally:
            await factory.database.close()

    return asyncio.run(run())


def with_tokens(url: str, work: "Callable[[AccessTokens], Awaitable[Result]]") -> Result:
    """Run `work` with the tokens of a database, without loading the other services; return its result.

    :raises BrokerError: when the database has no tables yet
    """
    from broker.services.auth.tokens import AccessTokens
    from broker.storage.database import Database, addressed

    _check_tables(url)

    async def run() -> Result:
        database = Database(addressed(url))
        try:
            return await work(AccessTokens(database))
        finally:
            await database.close()

    return asyncio.run(run())


def _check_tables(url: str) -> None:
    from broker.storage.database import addressed
    from broker.storage.migration import check

    if not check(addressed(url)):
        raise BrokerError("the database has no tables yet", "run: coget-broker upgrade --database URL")
