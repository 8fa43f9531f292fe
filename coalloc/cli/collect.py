"""`coget collect`: many files from many servers to one place, through relays where that is faster."""

import sys
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

import click

from coalloc.cli import guaranteed_classes, interrupts, options
from coalloc.cli.failures import CommandFailed
from coalloc.cli.fetch_options import limit_rate
from coalloc.cli.progress import showing
from coalloc.errors import CoallocError, RateMissed
from coalloc.util.streams import say, say_json

if TYPE_CHECKING:
    from coalloc.collect.values import CollectReport, GuaranteedClass
    from coalloc.display.collect_bars import CollectionBars
    from coalloc.display.collect_text import CollectionLines
    from coalloc.display.json import Document

__all__ = ["collect"]


@click.command(short_help="Collect many files from many servers to one place.")
@options.sources()
@click.option(
    "--to",
    required=True,
    metavar="DIR|URL",
    help="Destination directory: local, or at a GridFTP server. Created if missing.",
)
@click.option(
    "--via",
    multiple=True,
    metavar="URL,...|ROUTE",
    help="Servers that may relay, with the directories for their temporary files; or a depot for data between two "
    "servers, HOST=DEPOT for one receiving server. May be repeated.",
)
@click.option(
    "--method",
    metavar="NAME",
    help="Scheduling method.  [default: adaptive; all-at-once without SciPy]",
)
@click.option(
    "--network",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Network file (YAML): rates of links, and more servers that may relay.  [default: measured rates]",
)
@options.broker
@options.data_hosts
@options.delegate
@options.as_json
@options.verbose
@options.overwrite
@limit_rate
@click.option(
    "--guarantee",
    "guarantees",
    multiple=True,
    callback=guaranteed_classes.parse,
    metavar="PATTERN=RATE[@PERCENT]|FILE.yaml",
    help="Rate of the files whose names fit a pattern, such as '*.h5=5 MB/s@95', in 95 % of the seconds (default); "
    "other files get what is left. May be repeated; the first fitting pattern counts. A YAML file names several, also "
    "in records per second.",
)
@click.option("--quiet", is_flag=True, help="Show errors only.")
def collect(
    sources: tuple[str, ...],
    to: str,
    via: tuple[str, ...],
    method: str | None,
    network: Path | None,
    broker: str | None,
    data_hosts: tuple[str, ...],
    delegate: tuple[str, ...],
    overwrite: bool,
    limit_rate: int | None,
    guarantees: "tuple[GuaranteedClass, ...]",
    as_json: bool,
    quiet: bool,
) -> None:
    """Collect files from many servers to a directory here.

    From GridFTP servers, they can also be collected to a directory of another GridFTP server.

    SOURCE is the URL of a file, or of a directory if it ends with a slash: then all files in it are collected. Each URL
    is a different file. Replicas of one file come from a Metalink, a broker or a catalogue: name the Metalink, the
    dataset, or a name such as esgf:ID.

    Pieces may be relayed by GridFTP servers: the sources, and the servers of --via. Relays keep pieces in a
    directory .coget-staging-*, which is removed at the end. A file gets its name when it is complete and verified
    against its origin. To resume, run the same command again.

    \b
    Examples:
      coget collect ftp://a.example/run1/ ftp://b.example/run2/x.root --to data/
      coget collect davs://a.example/run1/ s3://bucket/run2/ ftp://b.example/x.root --to data/
      coget collect ftp://a.example/run1/ --to gsiftp://c.example/store/run1
      coget collect ftp://a.example/x ftp://b.example/y --to . --via ftp://c.example/scratch
      coget collect ftp://a.example/run1/ --to ftp://c.example/run1 --via depot-a.example
      coget collect ftp://a.example/run1/ --to data/ --network net.yaml --method path-delay
      coget collect ftp://a.example/run1/ --to data/ --guarantee '*.h5=25 MB/s@95'
      coget collect --json --quiet ftp://a.example/run1/ --to data/ > report.json
    """
    from coalloc import api

    relays = tuple(url for urls in via if "://" in urls for url in urls.split(",") if url)
    routes = tuple(route for route in via if route and "://" not in route)
    known = None
    if network:
        from coalloc.cli.network_plan import load

        known = load(network)
    wanted = api.CollectRequest(
        sources,
        to,
        via=relays,
        method=method,
        broker=broker,
        data_hosts=frozenset(data_hosts),
        delegate=frozenset(delegate),
        overwrite=overwrite,
        routes=routes,
        limit_rate=limit_rate,
        guarantees=guarantees,
    )
    results: api.Results[CollectReport] = api.Results()
    try:
        with nullcontext() if quiet else showing(_printer) as watch:
            report = interrupts.run(
                api.collect(wanted, watch, known, results),
                remedy="run the same command again to fetch the missing files",
            )
    except CoallocError as error:
        if results.unfinished is None:
            raise
        _say_loops(results.unfinished)
        if as_json:
            raise CommandFailed(error, _document(results.unfinished)) from error
        if not quiet:
            _print(results.unfinished)
        raise
    _say_loops(report)
    if as_json:
        say_json(_document(report))
    elif not quiet:
        _print(report)
    if missed := [pattern for pattern, each in report.guarantees.items() if not each.kept]:
        raise _missed(missed)


def _missed(patterns: list[str]) -> RateMissed:
    return RateMissed(
        f"all files were collected, but too late for the guaranteed rate of {', '.join(patterns)}",
        "ask for a lower rate, or name more replicas of these files",
    )


def _say_loops(report: "CollectReport") -> None:
    """Name the directories that are missing, also if only errors are shown."""
    for url in report.loops:
        say(f"{url} was left out: its listing is the same as that of a directory above it", err=True)


def _document(report: "CollectReport") -> "Document":
    from coalloc.display.json import collection

    return collection(report)


def _print(report: "CollectReport") -> None:
    from coalloc.display.collect_text import print_collection

    print_collection(report, sys.stderr)


def _printer(file: TextIO, live: bool) -> "CollectionBars | CollectionLines":
    if live:
        from coalloc.display.collect_bars import CollectionBars

        return CollectionBars(file)
    from coalloc.display.collect_text import CollectionLines

    return CollectionLines(file)
