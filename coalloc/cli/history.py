"""`coget history`: what this user's transfers achieved at each source."""

import json
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from coalloc.cli import options

if TYPE_CHECKING:
    from coalloc.history import SourceSummary

__all__ = ["history"]


@click.command(short_help="Show what your transfers achieved, per source.")
@options.as_json
def history(as_json: bool) -> None:
    """Show what your transfers achieved, per source: the base of coget's forecasts.

    \b
    Examples:
      coget history
      coget history --json
    """
    from coalloc import api

    summaries = api.history()
    if as_json:
        click.echo(json.dumps({"sources": [summary._asdict() for summary in summaries]}, indent=2))
    elif summaries:
        _print(summaries)
    else:
        click.echo("No transfers yet.")


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
