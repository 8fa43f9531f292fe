"""`coget stream`: a file at a promised rate, on standard output. Progress goes to stderr."""

from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from coalloc.cli import interrupts, options
from coalloc.cli.get import print_reports, printer
from coalloc.cli.progress import showing
from coalloc.errors import RateMissed

if TYPE_CHECKING:
    from coalloc.model.reports import TransferReport

__all__ = ["stream"]


@click.command(short_help="Write a file to standard output at a promised rate.")
@options.sources()
@click.option(
    "--rate",
    required=True,
    callback=options.rate,
    metavar="RATE",
    help="Rate at which the file is read, such as '5 MB/s' or '40 Mbit/s'.",
)
@click.option(
    "--sure",
    type=options.SHARE,
    default=95,
    show_default=True,
    metavar="PERCENT",
    help="Share of the seconds in which the bytes must arrive in time.",
)
@options.transfer_options
@click.option(
    "--checksum",
    metavar="ALGORITHM:HEX",
    help="Expected checksum; 'none' disables checksums.  [default: compare the replicas]",
)
@options.verbose
@click.option("--quiet", is_flag=True, help="Show errors only.")
def stream(rate: int, sure: float, quiet: bool, **given: Any) -> None:
    """Write a file to standard output at a promised rate, from as few sources as possible.

    First coget measures all sources for some seconds. Then it promises the rate and writes the first byte, or it ends
    with status 9 and shows the rate that it can promise. If the promise is in danger later, coget uses more sources.

    Use what was written only if the exit status is 0, or if it is 9 and the whole file was written: then the bytes are
    right, but came too late more often than promised.

    \b
    Examples:
      coget stream --rate '5 MB/s' https://a.example/film.mp4 ftp://b.example/film.mp4 | player -
      coget stream --rate '40 Mbit/s' --sure 99 ftp://a.example/run1.dat ftp://b.example/run1.dat | analyse
    """
    from coalloc import api
    from coalloc.cli import standard_output
    from coalloc.model.promises import ReadingRate

    standard_output.check(as_json=False)
    request = options.request(**given)
    results: api.Results[TransferReport] = api.Results()
    write = partial(standard_output.write_file, request, results=results, rate=ReadingRate(rate, sure / 100))
    with nullcontext() if quiet else showing(printer) as watch:
        (report,) = interrupts.run(write(watch))
    if not quiet:
        print_reports([report])
    if report.reading and not report.reading.kept:
        raise _missed(report)


def _missed(report: "TransferReport") -> RateMissed:
    from coalloc.display.promises import result

    assert report.reading is not None
    return RateMissed(f"the file was read, but {result(report.reading)}", "ask for a lower rate, or add sources")
