"""The command `coget-broker subject`: subjects that cannot be matched to a person, and their assignment."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

import click

from broker.cli.shared import database_option, with_services
from broker.config.settings import Settings
from coalloc.util.streams import say

if TYPE_CHECKING:
    from broker.storage.subjects import Lock

__all__ = ["show_locks", "subject"]


@click.group()
def subject() -> None:
    """List locked subjects, and assign them.

    An upgrade locks subjects that it cannot match to a person: their tokens and logins are invalid, their tasks wait,
    and a person who logs in again through the identity provider gets a new subject.

    \b
    Examples:
      coget-broker subject list
      coget-broker subject assign a_lice@iam.example a%20lice@https://iam.example/
      coget-broker subject assign robot@iam.example robot@iam.example
    """


@subject.command("list")
@database_option
def listed(database: str) -> None:
    """List the locked subjects, and the reasons."""
    show_locks(with_services(Settings(database), lambda broker: broker.identities.locks()))


def show_locks(locks: "Iterable[Lock]") -> None:
    """Print locked subjects, and the reasons."""
    for each in locks:
        say(f"{each.was}  {each.reason}")


@subject.command("assign")
@database_option
@click.argument("old")
@click.argument("new")
def assign(database: str, old: str, new: str) -> None:
    """Move everything of the locked subject OLD, its UUID included, to NEW: SUB@ISSUER, or a local name.

    NEW may equal OLD: then OLD is unlocked, and belongs to the holder of its tokens.
    """
    left, here = with_services(Settings(database), lambda broker: broker.identities.assign("coget-broker", old, new))
    if left:
        say(f"{left} rows stay with {old}, which is still locked, because {new} has the same rows.", err=True)
    if not here and new != old:
        say(f"{new} is new here: check the spelling.", err=True)
