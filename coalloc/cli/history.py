"""`coget history`: what this user's transfers achieved at each source."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from coalloc.cli import options

if TYPE_CHECKING:
    from coalloc.history import SourceSummary

__all__ = ["history"]


@click.group(short_help="Show what your transfers achieved, per source.", invoke_without_command=True)
@options.as_json
@click.pass_context
def history(context: click.Context, as_json: bool) -> None:
    """Show what your transfers achieved, per source: the base of coget's forecasts.

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
        click.echo(json.dumps({"sources": [summary._asdict() for summary in summaries]}, indent=2))
    elif summaries:
        _print(summaries)
    else:
        click.echo("No transfers yet.")


@history.command("import", short_help="Learn from what other programs logged.")
@click.argument("logs", type=click.Path(path_type=Path), nargs=-1, required=True, metavar="LOG...")
@options.as_json
@click.pass_context
def import_(context: click.Context, logs: tuple[Path, ...], as_json: bool) -> None:
    """Learn from what other programs logged, so that coget knows servers that it has not used yet.

    LOG is what aria2 keeps with --server-stat-of, intake-esgf's database of downloads, the transfer log of a GridFTP
    server, or a table with the columns source, start, bytes, and end or seconds. What is known already is left out.

    \b
    Examples:
      coget history import ~/.aria2/server-stat
      coget history import ~/.config/intake-esgf/download.db
    """
    from coalloc import api

    learned = []
    for log in logs:
        found = api.remember(log)
        learned.append({"log": str(log), **found._asdict()})
        if not (as_json or context.obj):
            click.echo(f"{found.kind}: {found.transfers} transfers, {found.usable} of them of use, {found.new} new")
    if as_json or context.obj:
        click.echo(json.dumps({"logs": learned}, indent=2))


def _print(summaries: "Sequence[SourceSummary]") -> None:
    from coalloc.progress.table import console, table

    headings = ("source", ">transfers", ">bytes", ">mean rate", "last", ">failures")
    console(sys.stdout).print(table(headings, map(_row, summaries)))


def _row(summary: "SourceSummary") -> tuple[str, ...]:
    from datetime import datetime

    from coalloc.progress import human

    return (
        human.one_line(summary.source),
        str(summary.transfers),
        human.size(summary.bytes),
        "-" if summary.rate is None else human.rate(summary.rate),
        f"{datetime.fromtimestamp(summary.last):%Y-%m-%d %H:%M}",
        str(summary.failures),
    )
