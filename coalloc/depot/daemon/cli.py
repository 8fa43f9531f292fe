"""The command `coget-depot`."""

import asyncio
import logging
import secrets
import stat
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click

from coalloc.config import access_with
from coalloc.depot.daemon.server import serve
from coalloc.depot.daemon.settings import DepotSettings
from coalloc.depot.protocol.addresses import MOST_PORT, DestinationPattern, HostPort, is_numeric
from coalloc.depot.tickets import Ticket, key_of, sign
from coalloc.errors import CoallocError
from coalloc.util.addresses import parse_networks
from coalloc.util.secret_files import read_secret

__all__ = ["depot", "main"]

log = logging.getLogger(__name__)

LEAST_SECRET = 16
NEW_SECRET = "create one with: openssl rand -hex 32 >"
DEFAULTS = DepotSettings()


class _Parsed(click.ParamType[Any]):
    """An option's value, parsed by a function that raises ValueError."""

    def __init__(self, name: str, parse: Callable[[str], Any]) -> None:
        self.name = name
        self._parse = parse

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str):
            return value
        try:
            return self._parse(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


def _secret(path: str) -> bytes:
    try:
        secret = read_secret(Path(path)).encode()
        mode = Path(path).stat().st_mode
    except OSError as error:
        raise ValueError(f"cannot read {path}: {error.strerror}") from None
    except ValueError as error:
        raise ValueError(f"cannot use the secret in {path}: {error}; {NEW_SECRET} {path}") from None
    if len(secret) < LEAST_SECRET:
        raise ValueError(f"the secret in {path} is shorter than {LEAST_SECRET} bytes; {NEW_SECRET} {path}")
    _warn_if_shared(path, mode, "secret")
    return secret


def _token(path: str) -> str:
    try:
        token, mode = read_secret(Path(path)).strip(), Path(path).stat().st_mode
    except OSError as error:
        raise ValueError(f"cannot read {path}: {error.strerror}") from None
    except ValueError as error:
        raise ValueError(f"cannot use the token in {path}: {error}") from None
    _warn_if_shared(path, mode, "token")
    return token


def _warn_if_shared(path: str, mode: int, kind: str) -> None:
    if mode & (stat.S_IROTH | stat.S_IWOTH):  # no error, as container systems may mount secrets so
        log.warning("others may read or change the %s in %s; run: chmod 600 %s", kind, path, path)


def _address(text: str) -> str:
    if text and not is_numeric(text):
        raise ValueError(f"{text!r} is not a numeric address")
    return text


def _ports(text: str) -> tuple[int, int]:
    first, _, last = text.partition("-")
    if not (first.isdecimal() and last.isdecimal() and 0 < int(first) <= int(last) <= MOST_PORT):
        raise ValueError(f"{text!r} is not FIRST-LAST, two ports")
    return int(first), int(last)


PLACE = _Parsed("host:port", lambda text: HostPort.parse(text, least_port=0))
NETWORK = _Parsed("network", lambda text: parse_networks([text])[0])
DESTINATION = _Parsed("destination", DestinationPattern.parse)
PORTS = _Parsed("ports", _ports)
SECRET = _Parsed("file", _secret)
TOKEN = _Parsed("file", _token)
ADDRESS = _Parsed("address", _address)

depot_name = click.option(
    "--name",
    default=DEFAULTS.name,
    show_default=True,
    metavar="NAME",
    help="Name of the depot in tickets, and on the broker. Depots with a --table need different names.",
)


@click.group(name="coget-depot", context_settings={"max_content_width": 100})
@click.version_option(package_name="coget", message="coget-depot %(version)s")
def depot() -> None:
    """Relay connections at the session layer, so that each leg has a short round trip.

    \b
    Examples:
      coget-depot serve
      coget-depot serve --listen 0.0.0.0:4000 --name depot-a --secret-file secret
      coget-depot ticket --secret-file secret --name depot-a --user ann \\
                         --destinations ftp.example
    """
    logging.basicConfig(format="coget-depot: %(message)s", level=logging.WARNING)


@depot.command("serve")
@click.option(
    "--listen",
    type=PLACE,
    default=str(DEFAULTS.listen),
    show_default=True,
    metavar="HOST:PORT",
    help="Address to listen on; port 0: any free port.",
)
@depot_name
@click.option(
    "--secret-file",
    "secret",
    type=SECRET,
    metavar="FILE",
    help="File with the secret that signs tickets. If it is given, every client needs a ticket.",
)
@click.option(
    "--clients",
    type=NETWORK,
    multiple=True,
    metavar="NETWORK",
    help="Permitted clients. May be repeated.  [default: this machine; with a secret, all]",
)
@click.option(
    "--destinations",
    type=DESTINATION,
    multiple=True,
    metavar="PATTERN",
    help="Permitted servers and next depots: HOST or NETWORK, with :PORT or :FIRST-LAST for some ports only. Those at "
    "private addresses must be in a NETWORK. May be repeated.  [default: this machine; with a secret, the public ones "
    "in the ticket]",
)
@click.option(
    "--table",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Forwarding table (TOML): the next depots by destination.",
)
@click.option(
    "--broker",
    metavar="URL",
    help="Broker that gets reports about the connections to servers and depots, and gives a forwarding table.",
)
@click.option("--token-file", type=TOKEN, metavar="FILE", help="File with the depot's token for the broker.")
@click.option(
    "--audit",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Audit log: one JSON line per session.  [default: standard error]",
)
@click.option(
    "--data-ports",
    type=PORTS,
    metavar="FIRST-LAST",
    help="Ports for copies between two servers, which one of them connects to.  [default: any free port]",
)
@click.option(
    "--congestion",
    default="",
    metavar="NAME",
    help="Congestion control of outgoing connections, such as cubic.  [default: the system's]",
)
@click.option(
    "--sessions",
    "most_sessions",
    type=click.IntRange(1),
    default=DEFAULTS.most_sessions,
    show_default=True,
    metavar="N",
    help="Maximum number of sessions at once.",
)
@click.option(
    "--sessions-per-user",
    "most_per_user",
    type=click.IntRange(1),
    default=DEFAULTS.most_per_user,
    show_default=True,
    metavar="N",
    help="Maximum number of sessions at once per user; per client without a ticket, also a quarter of all.",
)
@click.option(
    "--idle",
    "idle_seconds",
    type=click.FloatRange(1),
    default=DEFAULTS.idle_seconds,
    show_default=True,
    metavar="SECONDS",
    help="Time without any byte after which a session is reset.",
)
@click.option(
    "--drain",
    "drain_seconds",
    type=click.FloatRange(0),
    default=DEFAULTS.drain_seconds,
    show_default=True,
    metavar="SECONDS",
    help="Time for sessions to end after SIGTERM.",
)
def _serve(
    clients: Sequence[Any], destinations: Sequence[Any], broker: str | None, token_file: str | None, **given: Any
) -> None:
    """Relay connections until SIGTERM.

    Clients are coget (--via), Python programs (coalloc.depot), and all programs that support SOCKS5 or HTTP CONNECT, at
    the same port. Without options, the depot serves this machine only. Metrics for this machine are at
    http://127.0.0.1:PORT/metrics.

    \b
    Examples:
      coget-depot serve
      coget-depot serve --listen 0.0.0.0:4000 --clients 192.0.2.0/24 \\
                        --destinations ftp.example:2811
      coget-depot serve --listen 0.0.0.0:4000 --name depot-a --secret-file secret
    """
    if (broker is None) != (token_file is None):
        raise click.UsageError("--broker and --token-file must be given together")
    access = access_with(broker, token_file) if broker else None
    settings = DepotSettings(clients=tuple(clients), destinations=tuple(destinations), broker=access, **given)
    if settings.clients and not settings.destinations and settings.secret is None:
        raise click.UsageError("--clients needs --destinations: give the servers that these clients may reach")
    asyncio.run(serve(settings, lambda place: click.echo(f"coget-depot accepts sessions at {place}")))


@depot.command("ticket")
@click.option(
    "--secret-file", "secret", type=SECRET, required=True, metavar="FILE", help="File with the depot's secret."
)
@depot_name
@click.option("--user", required=True, metavar="NAME", help="User, for the audit log and limits.")
@click.option(
    "--destinations",
    type=DESTINATION,
    multiple=True,
    required=True,
    metavar="PATTERN",
    help="Permitted servers and next depots, as for coget-depot serve. May be repeated.",
)
@click.option(
    "--client",
    type=ADDRESS,
    default="",
    metavar="ADDRESS",
    help="Numeric address of the client, which SOCKS5 and HTTP CONNECT require.  [default: any]",
)
@click.option(
    "--minutes",
    type=click.FloatRange(0, min_open=True),
    default=60.0,
    show_default=True,
    metavar="N",
    help="Time for which the ticket is valid.",
)
@click.option(
    "--bytes",
    "count",
    type=click.IntRange(1),
    default=10**12,
    show_default=True,
    metavar="N",
    help="Maximum bytes of all sessions, both directions.",
)
@click.option(
    "--sessions",
    type=click.IntRange(1),
    default=1000,
    show_default=True,
    metavar="N",
    help="Maximum number of sessions.",
)
def _ticket(
    secret: bytes,
    name: str,
    user: str,
    destinations: Sequence[DestinationPattern],
    minutes: float,
    count: int,
    sessions: int,
    client: str,
) -> None:
    """Print a ticket and its key.

    The output can be put into tokens.toml or a forwarding table as it is.

    \b
    Example:
      coget-depot ticket --secret-file secret --name depot-a --user ann \\
                         --destinations ftp.example
    """
    expires = int(time.time() + 60 * minutes)
    ticket = Ticket(secrets.token_urlsafe(9), user, name, tuple(destinations), expires, count, sessions, client)
    try:
        text = sign(ticket, secret)
    except ValueError as error:
        raise click.UsageError(f"{error}: give fewer destinations") from None
    click.echo(f'ticket = "{text}"\nkey = "{key_of(text, secret).hex()}"')


def main() -> None:
    """Run the command; convert coget's errors to a message and an exit status."""
    try:
        depot(standalone_mode=True)
    except CoallocError as error:
        remedy = f"\n{error.remedy}" if error.remedy else ""
        click.echo(f"coget-depot: {error.message}{remedy}", err=True)
        sys.exit(error.status)
    except KeyboardInterrupt:
        sys.exit(130)
