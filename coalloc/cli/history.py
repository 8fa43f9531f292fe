"""`coget history`: the results of this user's transfers at each source."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from coalloc.cli import interrupts, options
from coalloc.errors import UsageError
from coalloc.util.streams import say, say_json

if TYPE_CHECKING:
    from coalloc.broker_client.imports import Remembered
    from coalloc.history.values import SourceSummary

__all__ = ["history"]

SHOWN = 100
"""Maximum number of refused, and of changed, lines that are printed."""


@click.group(short_help="Show the results of your transfers per source.", invoke_without_command=True)
@options.as_json
@click.pass_context
def history(context: click.Context, as_json: bool) -> None:
    """Show the results of your transfers per source, from which coget computes forecasts.

    \b
    Examples:
      coget history
      coget history --json
      coget history import aria2-servers.txt
    """
    context.obj = as_json
    if context.invoked_subcommand:
        return
    from coalloc import api

    summaries = api.history()
    if as_json:
        say_json({"sources": [summary._asdict() for summary in summaries]})
    elif summaries:
        _print(summaries)
    else:
        say("No transfers yet.")


@history.command("import", short_help="Import logs of other programs, or your Globus tasks.")
@click.argument("logs", type=click.Path(path_type=Path), nargs=-1, metavar="LOG...")
@click.option("--globus", is_flag=True, help="Import your Globus tasks; Globus asks you to log in.")
@options.broker
@options.as_json
@click.pass_context
def import_(context: click.Context, logs: tuple[Path, ...], globus: bool, broker: str | None, as_json: bool) -> None:
    """Import logs of other programs, so that coget can forecast for servers that it has not used yet.

    \b
    LOG is one of these:
      - the file that aria2 keeps with --server-stat-of
      - intake-esgf's database of downloads
      - the transfer log of a GridFTP server
      - a table with the columns source, start, bytes, and end or seconds

    Known transfers are skipped. Standard error shows refused lines, and values that are stored in another form, with
    their line numbers.

    With --globus, coget imports your own transfers at Globus, and reports them to your broker, if you have one.
    Set GLOBUS_CLIENT_ID to the id of an application, and GLOBUS_CLIENT_SECRET to its secret if it logs in by itself.

    \b
    Examples:
      coget history import ~/.aria2/server-stat
      coget history import ~/.config/intake-esgf/download.db
      coget history import --globus --broker https://broker.example
    """
    from coalloc import api

    if not (logs or globus):
        raise UsageError("nothing to import", "give a LOG, or use --globus")
    if broker and not globus:
        raise UsageError(
            "--broker makes no sense without --globus", "send the log to the broker: POST /broker/v1/transfers/import"
        )
    silent = as_json or context.obj
    learned = []
    for log in logs:
        found = api.remember(log)
        learned.append({"log": str(log), **_document(found)})
        if not silent:
            _print_summary(found)
            _print_lines(found)
    if globus:
        tasks = api.globus_tasks()
        found = api.remember_globus(tasks)
        if not silent:
            _print_summary(found)
        reported = interrupts.run(api.report_globus(tasks, broker))
        learned.append({"log": "globus", **_document(found), "told": reported})
        if not silent and reported is not None:
            say(f"{reported} of them were new to the broker")
    if silent:
        say_json({"logs": learned})


def _print_summary(found: "Remembered") -> None:
    say(f"{found.kind}: {found.transfers} transfers, {found.usable} of them usable, {found.new} new")


def _print_lines(found: "Remembered") -> None:
    """Print the first `SHOWN` refused and changed lines, and how many there are."""
    for refused in found.refused[:SHOWN]:
        say(f"line {refused.line} is refused: {refused.why}", err=True)
    for line, field, was, now in found.changed[:SHOWN]:
        change = f"is stored as {now!r}" if now else "is not read"
        say(f"line {line}: {field} {was!r} {change}", err=True)
    if found.refused or found.changed:
        say(f"{len(found.refused)} lines refused, {len({each.line for each in found.changed})} changed", err=True)


def _document(found: "Remembered") -> dict[str, object]:
    return {
        **found._asdict(),
        "refused": [each._asdict() for each in found.refused[:SHOWN]],
        "changed": [each._asdict() for each in found.changed[:SHOWN]],
        "lines_refused": len(found.refused),
        "lines_changed": len({each.line for each in found.changed}),
    }


def _print(summaries: "Sequence[SourceSummary]") -> None:
    from coalloc.display.table import ReportPrinter, table

    headings = ("source", ">transfers", ">bytes", ">mean rate", "last", ">failures")
    ReportPrinter(sys.stdout).print(table(headings, map(_row, summaries)))


def _row(summary: "SourceSummary") -> tuple[str, ...]:
    from datetime import datetime

    from coalloc.util import human

    return (
        human.one_line(summary.source),
        str(summary.transfers),
        human.size(summary.bytes),
        "-" if summary.rate is None else human.rate(summary.rate),
        f"{datetime.fromtimestamp(summary.last):%Y-%m-%d %H:%M}",
        str(summary.failures),
    )
