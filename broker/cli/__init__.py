"""The command `coget-broker`: serve, worker, demo, report, upgrade, token, client, replica, subject and others."""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, cast, get_args
from urllib.parse import urlsplit

import click

from broker.errors import BrokerError
from broker.memory import collect_seldom

collect_seldom()  # loading the modules below makes many objects
try:
    from broker.cli.demo import demo
    from broker.cli.first_token import handed_over
    from broker.cli.ignored import ignored
    from broker.cli.replica import list_unconfirmed, replica
    from broker.cli.report import report
    from broker.cli.shared import config_option, database_option, port_option, with_services, with_tokens
    from broker.cli.subject import show_locks, subject
    from broker.config.settings import Settings, Strategy, configured
    from broker.models.callers import ROLES, NewToken, Role, TokenRecord
    from coalloc.errors import CoallocError
    from coalloc.safe_text import redact
    from coalloc.util.finite_range import FiniteRange
    from coalloc.util.streams import guard, say
except ModuleNotFoundError as missing:  # coget was installed without its broker
    sys.exit(f"coget-broker: {missing.name} is not installed\n  run: pip install 'coget[broker]'")

if TYPE_CHECKING:
    from broker.factory import Factory

__all__ = ["main"]

site_option = click.option(
    "--site",
    default="",
    metavar="NAME",
    help="Site of this machine; it accesses the directories of this site's collections directly.",
)


@click.group()
@click.version_option(package_name="coget", message="coget-broker %(version)s")
def broker() -> None:
    """Run and manage the broker: replica locations, measured transfers, and forecasts of the next ones.

    \b
    Examples:
      coget-broker serve
      coget-broker serve --database postgresql+psycopg://broker@db.example/broker
      coget-broker token create ann --role curator --site CERN
    """


@broker.command()
@database_option
@click.option("--host", default="127.0.0.1", show_default=True, metavar="ADDRESS", help="Address to listen on.")
@port_option
@click.option("--anonymous", is_flag=True, help="Allow reading without a token.")
@click.option(
    "--rank",
    default=",".join(Settings().ranking),
    show_default=True,
    metavar="NAMES",
    help=f"Criteria that order replicas, out of {', '.join(get_args(Strategy))}; "
    "each criterion decides between replicas that are equal by the earlier ones.",
)
@click.option(
    "--explore",
    default=Settings().explore,
    show_default=True,
    type=click.IntRange(0),
    metavar="N",
    help="At most one answer in N puts a replica with an unmeasured link first; 0: none.",
)
@click.option(
    "--keep-days",
    type=FiniteRange(0, min_open=True),
    metavar="DAYS",
    help="Age after which transfers are deleted; PostgreSQL deletes whole months.  [default: never]",
)
@site_option
@config_option
@click.option(
    "--public-url",
    default="",
    metavar="URL",
    help="Public URL of the broker behind a proxy.  [default: the address of each connection]",
)
def serve(
    database: str,
    host: str,
    port: int,
    anonymous: bool,
    rank: str,
    explore: int,
    keep_days: float | None,
    site: str,
    config: Path | None,
    public_url: str,
) -> None:
    """Serve the REST interface until interrupted.

    In an empty database, the command creates the tables and a first admin token. It shows the token once on a
    terminal; otherwise it writes the token to a file that only you can read, and shows the file's path. It refuses a
    database of an older version: run `coget-broker upgrade` first.
    """
    from broker.server import serve as run
    from broker.storage.database import addressed
    from broker.storage.migration import check, upgrade

    settings = Settings(
        database, anonymous, _ranking(rank), explore, keep_days, site=site, public_url=_origin(public_url)
    )
    if config:
        settings = configured(settings, config)
    address = addressed(database)
    if not check(address):
        new = NewToken(subject="admin", role="admin")
        with handed_over(database) as hand_over:
            upgrade(address)
            hand_over(with_services(settings, lambda broker: broker.tokens.issue("coget-broker", new)).token)
    run(settings, host, port)


@broker.command(short_help="Upgrade the tables of a database.")
@database_option
@config_option
def upgrade(database: str, config: Path | None) -> None:
    """Upgrade the tables of a database to the version that this broker needs. Make a backup first.

    Use the same --config as for serve: names of subjects from an identity provider then get the full issuer URL.
    Subjects that cannot be matched to a person are listed, and locked until `coget-broker subject assign`.
    """
    from broker.storage.database import addressed
    from broker.storage.migration import upgrade as run

    made = run(addressed(database), configured(Settings(database), config).namers if config else None)
    click.echo("The tables were created." if made else "The tables have the current version.")
    _list_places(database)
    if locks := with_services(Settings(database), lambda broker: broker.identities.locks()):
        click.echo("\nSubjects that are locked, until: coget-broker subject assign OLD NEW")
        show_locks(locks)
    list_unconfirmed(database)


def _list_places(database: str) -> None:
    """Print the URLs that credentials without `for` in the workers' TOML file are used for, as entries of that file."""
    from broker.storage.collections import CollectionStore

    async def read(broker: "Factory") -> dict[str, list[str]]:
        async with broker.database.read() as connection:
            return await CollectionStore(connection).places()

    places = with_services(Settings(database), read)
    if places:
        click.echo('Credentials without a "for" in the [credentials] of --config are used for these URLs only:')
    for credential, urls in places.items():
        click.echo(f"\n[credentials.{credential}]\nfor = [{', '.join(map(_quoted, urls))}]")


def _quoted(url: str) -> str:
    return json.dumps(url)


@broker.command(short_help="Carry out tasks until interrupted.")
@database_option
@site_option
@click.option(
    "--via",
    multiple=True,
    callback=lambda ctx, param, value: _checked_routes(value),
    metavar="ROUTE",
    help="Depot for data between two servers: its name on the broker, or HOST:PORT; none for no depot. HOST=ROUTE is "
    "for one receiving server. May be repeated.  [default: none]",
)
@config_option
def worker(database: str, site: str, via: tuple[str, ...], config: Path | None) -> None:
    """Carry out tasks until interrupted, in parallel with the broker and other workers of a PostgreSQL database.

    Run one worker on each data-transfer node. With SQLite, the broker itself carries out tasks.
    """
    from broker.server import work as run
    from broker.storage.database import addressed
    from broker.storage.migration import check

    if database.startswith("sqlite"):
        raise BrokerError("on SQLite the broker itself carries out tasks", "run: coget-broker serve")
    if not check(addressed(database)):
        raise BrokerError("the database has no tables yet", "run: coget-broker upgrade --database URL")
    settings = Settings(database, site=site, via=via)
    run(configured(settings, config) if config else settings)


@broker.group()
def token() -> None:
    """Create, list and revoke tokens. The broker need not be running."""


@token.command()
@database_option
@click.argument("subject")
@click.option("--role", type=click.Choice(ROLES), default="reader", show_default=True, help="Role of the token.")
@click.option(
    "--site", default="", metavar="NAME", help="Default destination site of the transfers that this subject reports."
)
@click.option("--days", type=FiniteRange(0, min_open=True), metavar="N", help="Lifetime in days.  [default: unlimited]")
def create(database: str, subject: str, role: str, site: str, days: float | None) -> None:
    """Print a new token for SUBJECT. It is shown only once.

    \b
    Examples:
      coget-broker token create ann --role reader --site CERN
    """
    new = NewToken.model_validate({"subject": subject, "role": role, "site": site, "days": days})
    issued = with_tokens(database, lambda tokens: tokens.issue("coget-broker", new))
    click.echo(issued.token)


@token.command("list")
@database_option
def listed(database: str) -> None:
    """List all tokens and user logins, without the secret tokens themselves."""
    for each in with_tokens(database, lambda tokens: tokens.all()):
        say(_token(each, "revoked" if each.revoked_at else "good"))


def _token(each: TokenRecord, state: str) -> str:
    return f"{each.id:>6}  {each.kind:<5}  {each.role:<8}  {each.subject}  {each.site or '-'}  {state}"


@token.command()
@database_option
@click.argument("number", type=int)
@click.option("--issued", is_flag=True, help="Also revoke the tokens that were issued with this token.")
def revoke(database: str, number: int, issued: bool) -> None:
    """Revoke the token or login NUMBER of `coget-broker token list`, and all tokens that derive from it.

    Also print the tokens that were issued with it: they stay valid unless --issued is given.
    """
    found = with_tokens(database, lambda tokens: tokens.revoke("coget-broker", number, issued))
    for each in found:
        say(_token(each, "revoked" if issued else "good"))
    if found and not issued:
        click.echo(
            f"These were issued with token {number} and are still valid; revoke those that you do not recognize.",
            err=True,
        )


@broker.group(short_help="Create, list and revoke OAuth2 clients.")
def client() -> None:
    """Create, list and revoke OAuth2 clients: programs that get tokens for themselves, or for users who log in."""


@client.command("create")
@database_option
@click.argument("name")
@click.option(
    "--role",
    type=click.Choice(ROLES),
    help="Role of the program itself, which then gets a secret.  [default: users log in through it]",
)
def create_client(database: str, name: str, role: Role | None) -> None:
    """Print the id of a new client called NAME, and its secret if it has one. The secret is shown only once."""
    subject = NewToken.model_validate({"subject": name}).subject
    made, secret = with_services(Settings(database), lambda broker: broker.clients.make("coget-broker", subject, role))
    click.echo(f"{made.id} {secret}" if secret else made.id)


@client.command("list")
@database_option
def list_clients(database: str) -> None:
    """List the clients that admins created; clients that registered themselves, like the globus CLI, are left out."""
    for each in with_services(Settings(database), lambda broker: broker.clients.made()):
        say(f"{each.id}  {each.role or '-':<8}  {each.name}")


@client.command("revoke")
@database_option
@click.argument("number", metavar="ID")
def revoke_client(database: str, number: str) -> None:
    """Revoke the client with this ID, and everything that was issued to it."""
    with_services(Settings(database), lambda broker: broker.clients.revoke("coget-broker", number))


@broker.command("rotate-key", short_help="Create a new signing key, and print its id.")
@database_option
def rotate_key(database: str) -> None:
    """Create a new signing key and print its id; tokens signed with the old key stay valid until they expire."""
    made = with_services(Settings(database), lambda broker: broker.keys.rotate())
    click.echo(made.id)


broker.add_command(demo)
broker.add_command(ignored)
broker.add_command(replica)
broker.add_command(report)
broker.add_command(subject)


def _origin(url: str) -> str:
    """Return a URL without its trailing slash.

    :raises click.BadParameter: when it has more than scheme, host and port
    """
    if url and not _is_origin(url):
        raise click.BadParameter(f"{redact(url)} is not like https://broker.example", param_hint="--public-url")
    return url.rstrip("/")


def _is_origin(url: str) -> bool:
    try:
        parts = urlsplit(url)
        named = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False
    return named and url.isprintable() and not set(url) & set(" ?#@") and not parts.path.strip("/")


def _checked_routes(via: tuple[str, ...]) -> tuple[str, ...]:
    """Return the routes over depots.

    :raises click.BadParameter: when a route or this user's file of tickets is invalid
    """
    if via:
        from coalloc.api import data_routes

        try:
            data_routes(via)
        except CoallocError as error:
            raise click.BadParameter(f"{error.message}\n  {error.remedy}") from None
    return via


def _ranking(names: str) -> tuple[Strategy, ...]:
    known = get_args(Strategy)
    chosen = [name.strip() for name in names.split(",")]
    if strange := [name for name in chosen if name not in known]:
        raise click.BadParameter(f"{', '.join(strange)} is unknown: use {', '.join(known)}", param_hint="--rank")
    return cast(tuple[Strategy, ...], tuple(chosen))


def main() -> NoReturn:
    """Run the console script."""
    from pydantic import ValidationError

    guard()
    try:
        sys.exit(broker.main(prog_name="coget-broker", standalone_mode=False) or 0)
    except click.ClickException as error:
        error.show()
        sys.exit(2)
    except click.exceptions.Abort:
        sys.exit(130)
    except ValidationError as error:
        first = error.errors()[0]
        say(f"coget-broker: {'.'.join(map(str, first['loc']))}: {first['msg']}", err=True)
        sys.exit(2)
    except BrokerError as error:
        click.echo(f"coget-broker: {error.message}\n  {error.remedy}", err=True)
        sys.exit(2)
