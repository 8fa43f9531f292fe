"""`coget submit`: submit a transfer to a broker, which runs it in the background."""

from collections import Counter
from typing import Any

import click

from coalloc.cli import interrupts, options
from coalloc.cli.progress import showing
from coalloc.cli.watch import printer, until_over
from coalloc.util.streams import say, say_json

__all__ = ["submit"]

SYNC = ("exists", "size", "mtime", "checksum")


@click.command(short_help="Submit a transfer to a broker.")
@click.argument("sources", metavar="SOURCE...", nargs=-1, required=True)
@click.argument("destination")
@click.option("-r", "--recursive", is_flag=True, help="Transfer the directory SOURCE with all its content.")
@click.option(
    "--sync",
    type=click.Choice(SYNC),
    metavar="LEVEL",
    help="Skip files that exist at the destination (exists), or have the same size, mtime or checksum there.",
)
@click.option(
    "--delete", is_flag=True, help="With -r: after the copy, delete files that exist only at the destination."
)
@click.option("--dry-run", is_flag=True, help="Only list the files that would be copied and deleted.")
@click.option("--label", metavar="TEXT", help="Label shown in task lists.")
@click.option(
    "--deadline",
    callback=lambda ctx, param, value: None if value is None else options.moment(value),
    metavar="TIME",
    help="Local time at which the task ends even if unfinished, as 2030-01-31T12:00.  [default: in a day]",
)
@click.option("--wait", is_flag=True, help="Show progress until the task is over, as `coget watch` does.")
@options.broker
@options.as_json
def submit(wait: bool, broker: str | None, as_json: bool, **given: Any) -> None:
    """Submit a transfer to a broker, which copies from SOURCE to DESTINATION in the background.

    Both are COLLECTION:/path, with the name or id of one of the broker's collections. SOURCE may also be a dataset,
    SCOPE:NAME, which the broker fetches from several of its replicas at once. If DESTINATION ends with a slash, it is a
    directory, and every SOURCE keeps its name.

    The command prints the task's id, for coget watch and coget tasks.

    \b
    Examples:
      coget submit run1:2024/x.root cern:/data/
      coget submit -r --label "all of run 1" fnal:/store/run1 cern:/data/run1
      coget submit --wait --sync size fnal:/store/a.root fnal:/store/b.root cern:/data/
      coget submit -r --sync size --delete --dry-run fnal:/store/run1/ cern:/data/run1
    """
    from coalloc import api

    submitted = interrupts.run(api.submit(api.TaskRequest(**given), broker))
    if given["dry_run"]:
        _print_planned(submitted.id, broker, as_json)
    elif wait:
        say(submitted.id, err=True)
        until_over(submitted.id, broker, as_json)
    elif as_json:
        say_json(submitted._asdict())
    else:
        say(submitted.id)


def _print_planned(number: str, broker: str | None, as_json: bool) -> None:
    """Wait for the result of a dry run, and print its steps."""
    from coalloc import api
    from coalloc.util import human

    found: Counter[str] = Counter()
    listed: list[dict[str, Any]] = []

    def show(each: api.PlannedFile) -> None:
        found[each.kind] += 1
        found["bytes"] += each.size
        if as_json:
            listed.append(each._asdict())
        elif each.source is None:
            say(f"delete {each.destination}")
        else:
            say(f"{each.kind} {each.source} to {each.destination}")

    with showing(printer) as progress:
        interrupts.run(api.watch(number, progress, broker), f"to cancel it: coget tasks cancel {number}")
    interrupts.run(api.dry_run(number, show, broker))
    if as_json:
        say_json(listed)
    size = human.size(found["bytes"])
    say(f"would copy {found['copy']} files, {size}, make {found['link']} links, delete {found['delete']}", err=True)
