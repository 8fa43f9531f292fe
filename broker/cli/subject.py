"""`coget-broker subject`: those of which nobody can say whose they are, and who they turn out to be."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

import click

from broker.cli.shared import database_option, with_services
from broker.config import Settings
from coalloc.streams import say

if TYPE_CHECKING:
    from broker.storage.subjects import Lock

__all__ = ["show_locks", "subject"]


@click.group()
def subject() -> None:
    """List subjects that are locked, and assign them.

    An upgrade locks those of which it cannot know whose they are: their tokens and logins are not good, their tasks
    wait, and who has come back from the identity provider since then is somebody new.

    \b
    Examples:
      coget-broker subject list
      coget-broker subject assign a_lice@iam.example a%20lice@https://iam.example/
      coget-broker subject assign robot@iam.example robot@iam.example
    """


@subject.command("list")
@database_option
def listed(database: str) -> None:
    """List the subjects that are locked, and why."""
    show_locks(with_services(Settings(database), lambda broker: broker.identities.locks()))


def show_locks(locks: "Iterable[Lock]") -> None:
    """Print subjects that are locked, and why."""
    for each in locks:
        say(f"{each.was}  {each.reason}")


@subject.command("assign")
@database_option
@click.argument("old")
@click.argument("new")
def assign(database: str, old: str, new: str) -> None:
    """Give all that is of the locked subject OLD, its UUID, too, to NEW: SUB@ISSUER, or a name that was chosen here.

    NEW may be OLD: then it is the name of whoever has its tokens.
    """
    left, here = with_services(Settings(database), lambda broker: broker.identities.assign("coget-broker", old, new))
    if left:
        say(f"{left} rows stay with {old}, which is still locked: {new} has the same.", err=True)
    if not here and new != old:
        say(f"{new} was not here yet: look whether it is spelt right.", err=True)
