"""`coget get`: fetch files. Progress goes to stderr; stdout is only for the JSON document."""

import sys
from collections.abc import Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import click

from coalloc.cli import interrupts, options
from coalloc.cli.failures import CommandFailed
from coalloc.cli.fetch_options import fetch_options
from coalloc.cli.progress import showing
from coalloc.errors import CoallocError, DeadlineMissed, UsageError
from coalloc.util.streams import say_json

if TYPE_CHECKING:
    from coalloc.display.bars import Bars
    from coalloc.display.text import Lines
    from coalloc.download.request import Request
    from coalloc.model.reports import TransferReport

__all__ = ["get", "print_reports", "printer"]


@click.command(short_help="Fetch a file from all its sources at once.")
@options.sources(required=False)
@click.option(
    "-i",
    "--input-file",
    type=click.Path(),
    metavar="FILE",
    help="List of files to fetch, one a line; - for standard input. -o is then a directory.",
)
@click.option(
    "-r",
    "--recursive",
    is_flag=True,
    help="SOURCE is the URL of a directory, or a name of several files: fetch all. Several URLs are copies of it.",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(),
    metavar="PATH",
    help="Target: a file name, an existing directory, or - for standard output.  [default: the file's own name, in "
    "the current directory]",
)
@options.transfer_options
@click.option(
    "--checksum",
    metavar="ALGORITHM:HEX",
    help="Expected checksum; 'none' disables checksums.  [default: compare the replicas]",
)
@click.option(
    "--staging",
    callback=lambda ctx, param, value: _staging(value),
    metavar="auto|URL,...",
    help="Relay through these servers if the plan is faster; auto: through any server with a measured link.",
)
@options.deadline
@fetch_options
@options.overwrite
@options.as_json
@options.verbose
@click.option("--quiet", is_flag=True, help="Show errors only.")
def get(input_file: str | None, recursive: bool, as_json: bool, quiet: bool, **given: Any) -> None:
    """Fetch a file from all its sources at once, and verify it.

    SOURCE is the URL of a replica (ftp(s), ftpes, gsiftp, http(s), dav(s), s3, osdf, pelican, or any scheme that fsspec
    opens), one Metalink file or URL, a name in a catalogue (doi:10.X/Y, drs://HOST/ID, esgf:ID, rucio:SCOPE:NAME,
    coget:SCOPE:NAME), or, with a broker, the name of a dataset. Several sources must be copies of the same file.
    ftp://host/a/b is the absolute path /a/b, as for globus-url-copy; ftp://host/~/b is below the home directory.

    Partial data are kept beside the target in NAME.coget. After an interruption or a failure, the same command
    continues where it stopped. With -o -, nothing is kept; use what was written only if the exit status is 0.

    \b
    Examples:
      coget get ftp://a.example/x.root ftp://b.example/x.root
      coget get -o data/ --checksum md5:9e107d9d372bb6826bd81d3542a419d6 ftp://a.example/x
      coget get --strategy conservative --blocks 15 ftp://a.example/x ftp://b.example/x
      coget get --json --quiet dataset.meta4 > report.json
      coget get --by 14:05 --sure 99 ftp://a.example/x ftp://b.example/x
      coget get --broker https://broker.example run1:2024/x.root
      coget get doi:10.5281/zenodo.1234#x.nc drs://drs.example/5f1d
      coget get -i list.txt -o data/
      coget get -r https://a.example/run1/ -o data/
      coget get -o - ftp://a.example/x.tar ftp://b.example/x.tar | tar x
    """
    if not given["sources"] and input_file is None:
        raise click.MissingParameter(param_hint="'SOURCE...'", param_type="argument")
    many = input_file is not None or recursive
    request = options.request(**given | {"output": _output(given["output"], many)})
    if many:
        from coalloc.cli import get_many

        get_many.fetch(request, input_file, recursive, as_json, quiet)
    else:
        _fetch(request, as_json, quiet)


def _fetch(request: "Request", as_json: bool, quiet: bool) -> None:
    """Fetch the files of the request, show progress, and print the reports."""
    from coalloc import api

    results: api.Results[TransferReport] = api.Results()
    fetch, remedy = partial(api.download, request), "run the same command again: it keeps the data that have arrived"
    if request.output == Path("-"):
        from coalloc.cli import standard_output

        standard_output.check(as_json)
        fetch, remedy = partial(standard_output.write_file, request), ""
    try:
        with nullcontext() if quiet else showing(printer) as watch:
            reports = interrupts.run(fetch(watch, results=results), remedy=remedy)
    except CoallocError as error:
        if not as_json:
            if not quiet and results.several:
                print_reports(results.done)
            raise
        from coalloc.display.json import unfinished

        raise CommandFailed(error, unfinished(results)) from error
    late = next((report for report in reports if report.deadline and not report.deadline.kept), None)
    if as_json:
        from coalloc.display.json import transfers

        if late:
            raise CommandFailed(_missed(late), transfers(reports))
        say_json(transfers(reports))
    elif not quiet:
        print_reports(reports)
    if late:
        raise _missed(late)


def _missed(report: "TransferReport") -> DeadlineMissed:
    from coalloc.util import human

    assert report.deadline is not None
    at = human.moment(report.deadline.first.deadline.at)
    return DeadlineMissed(f"{report.output} is complete, but later than {at}", "allow more time, or add sources")


def print_reports(reports: "Sequence[TransferReport]") -> None:
    """Print reports on standard error."""
    from coalloc.display.download_report import print_reports

    print_reports(reports, sys.stderr)


def _output(path: str | None, created: bool) -> Path | None:
    """Return --output as a Path; check it as text first, as a Path loses the final slash that marks a directory.

    :param created: whether coget creates the directory
    """
    if path == "":
        raise UsageError("--output is empty", "give a file name, or an existing directory, with -o")
    if path is not None and path.endswith("/") and not created and not Path(path).is_dir():
        raise UsageError(f"{path} is not a directory", "create it first, or leave out the / at its end to name a file")
    if path is None:
        return None
    return Path.cwd() / "-" if path != "-" and Path(path) == Path("-") else Path(path)  # ./- is a file


def _staging(value: str | None) -> tuple[str, ...] | None:
    """Return the value of --staging; an empty tuple for auto."""
    if value in (None, "auto"):
        return None if value is None else ()
    return tuple(url for url in str(value).split(",") if url)


def printer(file: TextIO, live: bool) -> "Bars | Lines":
    """Return the printer of progress: bars if the file is a terminal, else lines."""
    if live:
        from coalloc.display.bars import Bars

        return Bars(file)
    from coalloc.display.text import Lines

    return Lines(file)
