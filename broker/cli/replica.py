"""The command `coget-broker replica`: lists and confirms replicas whose files lie inside collections."""

from typing import TYPE_CHECKING

import click

from broker.cli.shared import database_option, with_services
from broker.config.settings import Settings
from broker.models.callers import Caller
from broker.models.catalogue import ConfirmedReplica, UnconfirmedReplica

if TYPE_CHECKING:
    from broker.factory import Factory

__all__ = ["list_unconfirmed", "replica"]

ADMIN = Caller(subject="coget-broker", role="admin")
PAGE = 1000
FEW = 100
"""Replicas of each collection that an upgrade lists."""


@click.group(short_help="List and confirm unconfirmed replicas in collections.")
def replica() -> None:
    """List unconfirmed replicas inside collections, and confirm them.

    An unconfirmed replica is readable only with access to its collection. Once confirmed, it is open to every user of
    the catalogue.
    """


@replica.command("list")
@database_option
@click.option("--in", "within", metavar="COLLECTION", help="Show only replicas inside this collection.")
def listed(database: str, within: str | None) -> None:
    """List unconfirmed replicas: dataset, URL, collections, and the user who registered each."""
    for each in _unconfirmed(database, within):
        click.echo(_line(each))


@replica.command("confirm")
@database_option
@click.argument("dataset", required=False)
@click.argument("url", required=False)
@click.option("--in", "within", metavar="COLLECTION", help="Confirm all replicas inside this collection.")
def confirm(database: str, dataset: str | None, url: str | None, within: str | None) -> None:
    """Confirm the replica of DATASET at URL, or all unconfirmed replicas inside a collection."""
    if within is None:
        if dataset is None or url is None:
            raise click.UsageError("give a DATASET and a URL, or a collection with --in")
        named = [ConfirmedReplica(dataset=dataset, url=url)]
    elif dataset is not None:
        raise click.UsageError("give a DATASET and a URL, or a collection with --in, not both")
    else:
        named = [ConfirmedReplica(dataset=each.dataset, url=each.url) for each in _unconfirmed(database, within)]
    with_services(Settings(database), lambda broker: _confirm(broker, named))
    for each in named:
        click.echo(f"{each.dataset}  {each.url}")


async def _confirm(broker: "Factory", named: list[ConfirmedReplica]) -> None:
    for begin in range(0, len(named), PAGE):
        await broker.confirming.confirm(ADMIN, named[begin : begin + PAGE])


def list_unconfirmed(database: str) -> None:
    """Print the unconfirmed replicas inside collections, at most `FEW` of each collection."""
    counts: dict[str, int] = {}
    for each in _unconfirmed(database):
        if not counts:
            click.echo(
                "These replicas lie inside collections: each user reads them with their own grants, until the "
                "collection's owner or an admin confirms them (coget-broker replica confirm):"
            )
        if counts.setdefault(each.collections[0], 0) < FEW:
            click.echo(_line(each))
        counts[each.collections[0]] += 1
    for name, count in counts.items():
        if count > FEW:
            click.echo(f"... and {count - FEW} more in {name}: coget-broker replica list --in {name!r}")


def _unconfirmed(database: str, within: str | None = None) -> list[UnconfirmedReplica]:
    async def read(broker: "Factory") -> list[UnconfirmedReplica]:
        found: list[UnconfirmedReplica] = []
        after = ("", "")
        while page := await broker.confirming.unconfirmed(ADMIN, *after, PAGE):
            found += [each for each in page if within is None or within in each.collections]
            after = (page[-1].dataset, page[-1].endpoint)
        return found

    return with_services(Settings(database), read)


def _line(each: UnconfirmedReplica) -> str:
    by = each.registered_by or "not known"
    return f"{each.dataset}  {each.url}  in {', '.join(each.collections)}  registered by: {by}"
