"""The command `coget-broker demo`: a broker with invented data to show."""

import asyncio
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import click

from broker.cli.shared import port_option
from broker.errors import BrokerError
from coalloc.util.addresses import parse_networks
from coalloc.util.streams import say

if TYPE_CHECKING:
    from broker.config.settings import Settings
    from broker.factory import Factory

__all__ = ["demo"]

USER = "ann"
LOOPBACK = parse_networks(["127.0.0.0/8", "::1/128"])
"""The networks of the demonstration, which connects only to this machine."""
PIECE = 1 << 20


@click.command(short_help="Serve a demonstration with invented data on this machine.")
@click.option(
    "--database",
    metavar="URL",
    help="Empty database to fill and keep: sqlite:///PATH or postgresql+psycopg://USER@HOST/NAME.  "
    "[default: a temporary file]",
)
@port_option
@click.option(
    "--log",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    metavar="FILE",
    help="Log with transfers to show instead of invented ones, in any format of `coget history import`.",
)
@click.option("--seed", default=1, show_default=True, metavar="N", help="Seed of the invented data.")
def demo(database: str | None, port: int, log: Path | None, seed: int) -> None:
    """Serve a demonstration on this machine: six sites, eight weeks of transfers, tasks, and failures.

    All data are invented. The command prints a token of an admin, who sees all reports, and a token of a user. The
    scores of forecasts appear about a minute later.

    \b
    Examples:
      coget-broker demo
      coget-broker demo --log /var/log/gridftp-transfer.log
    """
    from broker.config.settings import Settings
    from broker.server import serve
    from broker.storage.database import addressed
    from broker.storage.migration import check, upgrade

    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))  # to remove the directory
    with TemporaryDirectory(prefix="coget-demo-") as folder:
        settings = Settings(database or f"sqlite:///{folder}/demo.sqlite", network=LOOPBACK)
        address = addressed(settings.database)
        if check(address):
            raise BrokerError(
                "the database has tables already, so it was left unchanged",
                "choose an empty one, or show it: coget-broker serve --database URL",
            )
        upgrade(address)
        asyncio.run(_fill(settings, log, seed))
        click.echo(f"Reports: http://127.0.0.1:{port}/reports")
        serve(settings, "127.0.0.1", port)


async def _fill(settings: "Settings", log: Path | None, seed: int) -> None:
    import time

    from broker.demo.filling import count, fill
    from broker.factory import Factory
    from broker.models.callers import NewToken

    factory = Factory.of(settings)
    try:
        if log is None:
            await fill(factory, seed, time.time())
        else:
            await _import(factory, log)
            await count(factory)
        for new in (NewToken(subject="admin", role="admin"), NewToken(subject=USER, role="transfer")):
            issued = await factory.tokens.issue("coget-broker", new)
            click.echo(f"The token of {new.subject}, {new.role}: {issued.token}")
    finally:
        await factory.database.close()


async def _import(factory: "Factory", log: Path) -> None:
    """Import a log as transfers of the user, because users see only their own."""
    taken = await factory.logs.take(USER, _pieces(log))
    click.echo(f"{taken.accepted} transfers were imported from {log} ({taken.kind}).")
    for refusal in taken.refused:
        say(f"  line {refusal.line}: {refusal.why}", err=True)


async def _pieces(log: Path) -> AsyncIterator[bytes]:
    with log.open("rb") as file:
        while piece := file.read(PIECE):
            yield piece
