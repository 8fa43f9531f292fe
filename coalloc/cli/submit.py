"""`coget submit`: hand a download over to a broker, which does it while nobody waits."""

import time
from datetime import datetime
from typing import Any

import click

from coalloc.cli import interrupts, options
from coalloc.cli.watch import until_over
from coalloc.errors import UsageError
from coalloc.streams import say, say_json

__all__ = ["submit"]

SYNC = ("exists", "size", "mtime", "checksum")


@click.command(short_help="Hand a download over to a broker.")
@click.argument("sources", metavar="SOURCE...", nargs=-1, required=True)
@click.argument("destination")
@click.option("-r", "--recursive", is_flag=True, help="SOURCE is a folder, to be transferred with all that is in it.")
@click.option(
    "--sync",
    type=click.Choice(SYNC),
    metavar="LEVEL",
    help="Leave out what is at the destination already: exists, or has the same size, mtime or checksum.",
)
@click.option("--label", metavar="TEXT", help="What you want to know the task by.")
@click.option(
    "--deadline",
    callback=lambda ctx, param, value: _moment(value),
    metavar="TIME",
    help="Give up what is not done by then: 2030-01-31T12:00, in your own time zone.  [default: in a day]",
)
@click.option("--wait", is_flag=True, help="Show how it goes until it is done, as coget watch does.")
@options.broker
@options.as_json
def submit(wait: bool, broker: str | None, as_json: bool, **wishes: Any) -> None:
    """Hand a download over to a broker: it transfers from SOURCE to DESTINATION, while you do something else.

    Both are COLLECTION:/path, with a collection of the broker's by its name or id. SOURCE may as well be the name of a
    dataset, SCOPE:NAME: it comes from wherever the broker knows it to be, from several servers at once. With a slash at
    its end DESTINATION is a folder, and every SOURCE keeps its name.

    Prints the task's id, for coget watch and coget tasks.

    \b
    Examples:
      coget submit run1:2024/x.root cern:/data/
      coget submit -r --label "all of run 1" fnal:/store/run1 cern:/data/run1
      coget submit --wait --sync size fnal:/store/a.root fnal:/store/b.root cern:/data/
    """
    from coalloc import api

    submitted = interrupts.run(api.submit(api.Handover(**wishes), broker))
    if wait:
        say(submitted.id, err=True)
        until_over(submitted.id, broker, as_json)
    elif as_json:
        say_json(submitted._asdict())
    else:
        say(submitted.id)


def _moment(said: str | None) -> float | None:
    """Seconds since the epoch."""
    if said is None:
        return None
    try:
        moment = datetime.fromisoformat(said).timestamp()
    except (ValueError, OverflowError, OSError):
        raise UsageError(f"{said!r} is no time", "write it as 2030-01-31T12:00") from None
    if moment <= time.time():
        raise UsageError(f"the deadline {said} has passed", "name a later one")
    return moment
