"""`coget forecast`: the quality of forecasts of transfer rates, measured on the user's own log."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from coalloc.cli import options
from coalloc.errors import UsageError
from coalloc.util.streams import drawn, say, say_json

if TYPE_CHECKING:
    from coalloc.history.formats import TransferLog
    from predictors.evaluate import Evaluation

__all__ = ["forecast"]

WORTH_COMPILING = 1_500
"""Number of transfers above which compiling saves more time than it takes."""


@click.group(short_help="Measure the accuracy of forecasts.")
def forecast() -> None:
    """Measure how good forecasts of transfer rates are.

    \b
    Examples:
      coget forecast evaluate transfers.csv
    """


@forecast.command(short_help="Compare forecasters on a log of transfers.")
@click.argument("log", type=click.Path(path_type=Path))
@click.option("--all", "every", is_flag=True, help="Show every forecaster instead of one per family.")
@options.as_json
def evaluate(log: Path, every: bool, as_json: bool) -> None:
    """Compare forecasters on a log of transfers.

    The transfers of LOG are forecast one after the other, each from those that had ended when it began. The last 60 %
    of the forecasts are scored.

    \b
    LOG is one of these, also compressed with gzip:
      - a table with the columns start, bytes, and end or seconds; it may
        also have source, sink, direction, file_class, streams, concurrency,
        setup_seconds, outcome
      - the transfer log of a GridFTP server
      - coget's own history
      - aria2's server statistics
      - intake-esgf's database

    \b
    Examples:
      coget forecast evaluate transfers.csv
      coget forecast evaluate ~/.local/share/coget/history.sqlite
      coget forecast evaluate --all --json /var/log/gridftp-transfer.log
    """
    from coalloc.history.formats import read_log

    read = read_log(log)
    found = _evaluations(read, every)
    if as_json:
        say_json(_document(read, found))
    else:
        _print(read, found)


def _evaluations(log: "TransferLog", every: bool) -> "list[Evaluation]":
    """Return the evaluations, the smallest median error first; report and skip forecasters that cannot be evaluated.

    A forecaster is skipped if its library is missing or if it makes no forecast on this log.
    """
    from predictors.errors import MissingLibraryError, NothingForecastError
    from predictors.evaluate import evaluate
    from predictors.registry import FORECASTERS, SHOWN, make

    found = []
    names = tuple(FORECASTERS) if every else SHOWN
    compiled = _compile(log)
    with click.progressbar(names, file=drawn(sys.stderr), item_show_func=lambda name: name) as bar:
        for name in bar:
            try:
                found.append(evaluate(log.observations, make(name, compiled)))
            except (MissingLibraryError, NothingForecastError) as why:
                say(f"{name} is left out: {why}", err=True)
    if not found:
        raise UsageError(
            f"too few transfers for a forecast: {len(log.observations)}",
            "give a log with more successful transfers of at least 1 MiB",
        )
    return sorted(found, key=lambda evaluation: evaluation.points.mdape)


def _compile(log: "TransferLog") -> bool:
    """Return whether to compile; warn if compiling would save time but numba is not installed."""
    from predictors.compiled import REMEDY, available

    worth = len(log.observations) >= WORTH_COMPILING
    if worth and not available():
        say(f"this takes about four times as long without numba; run: {REMEDY}", err=True)
    return worth and available()


def _document(log: "TransferLog", found: "Sequence[Evaluation]") -> dict[str, object]:
    return {
        "log": log.kind,
        "transfers": len(log.observations),
        "refused": [refused._asdict() for refused in log.refused],
        "forecasters": [
            {
                "name": each.forecaster,
                **each.points._asdict(),
                "silent": each.silent,
                "p10": each.low._asdict(),
                "p90": each.high._asdict(),
            }
            for each in found
        ],
    }


def _print(log: "TransferLog", found: "Sequence[Evaluation]") -> None:
    from coalloc.display.table import ReportPrinter, table
    from coalloc.util import human

    out = ReportPrinter(sys.stdout)
    out.print(f"{log.kind}: {len(log.observations)} transfers, the last {found[0].points.pairs} scored")
    for refused in log.refused[:3]:
        out.print(f"line {refused.line} left out: {human.one_line(refused.why)}")
    if len(log.refused) > 3:
        out.print(f"{len(log.refused) - 3} more lines left out")
    headings = (
        *("forecaster", ">MdAPE", ">RMSRE", ">|log error|", ">within 15 %", ">bias"),
        *(">below p10", ">worst 500", ">p10 / rate", ">silent"),
    )
    out.print(table(headings, map(_row, found)))
    out.print("below p10 should be 10 %; docs/reference/forecast.md explains the columns.")


def _row(each: "Evaluation") -> tuple[str, ...]:
    points, low = each.points, each.low
    return (
        each.forecaster,
        f"{100 * points.mdape:.1f} %",
        f"{points.rmsre:.2f}",
        f"{points.log_error:.2f}",
        f"{100 * points.close:.0f} %",
        f"{points.bias:.2f}",
        f"{100 * low.missed:.1f} %",
        f"{100 * low.worst:.0f} %",
        f"{low.sharpness:.2f}",
        str(each.silent),
    )
