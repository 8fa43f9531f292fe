"""The command `coget-broker report`: reports as files."""

import sys
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from broker.cli.shared import config_option, database_option, with_services
from broker.errors import BrokerError, Invalid
from coalloc.util.finite_range import FiniteRange

if TYPE_CHECKING:
    from broker.reports.document import Report
    from broker.reports.registry import Period

__all__ = ["report"]

FORMATS = ("html", "pdf", "csv", "json")
DAY = 86_400.0


def _moment(text: str) -> float:
    """Return an ISO date, with or without a time, in seconds since 1970; UTC if it has no offset."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise click.BadParameter(
            f"{text} is neither a date like 2026-11-22 nor a time like 2026-11-22T10:00+01:00"
        ) from None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def _pair(text: str) -> tuple[str, str]:
    """Return the name and the value of a report's parameter."""
    name, sign, value = text.partition("=")
    if not sign:
        raise click.BadParameter(f"{text} is not like source=CERN")
    return name, value


@click.command(short_help="Write one report, or all, as a file.")
@click.argument("name")
@click.argument("parameters", nargs=-1, type=_pair, metavar="[PARAMETER=VALUE]...")
@database_option
@config_option
@click.option("--since", type=_moment, metavar="DAY", help="Start date.  [default: depends on the report]")
@click.option("--until", type=_moment, metavar="DAY", help="End date.  [default: now]")
@click.option(
    "--days",
    type=FiniteRange(0, min_open=True),
    metavar="N",
    help="Length of the period before --until, in days; excludes --since.",
)
@click.option(
    "--format",
    "kind",
    type=click.Choice(FORMATS),
    help="Format; csv needs NAME as REPORT/TABLE.  [default: from the file's extension, or html]",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Target file.  [default: standard output]",
)
def report(
    name: str,
    parameters: Sequence[tuple[str, str]],
    database: str,
    config: Path | None,
    since: float | None,
    until: float | None,
    days: float | None,
    kind: str | None,
    output: Path | None,
) -> None:
    """Write the report NAME, or `all` reports, as one self-contained file, with all that an admin may see.

    HTML includes the figures and styles, without scripts. PDF has vector figures, and needs `coget[pdf]`.

    \b
    Examples:
      coget-broker report all -o week.html --days 7
      coget-broker report forecasters -o month.pdf --days 28
      coget-broker report pair source=CERN sink=FNAL -o pair.html --since 2026-11-01 --until 2026-12-01
      coget-broker report audit/changes --format csv
    """
    from broker.config.settings import Settings, configured
    from broker.reports.registry import made

    kind = kind or _kind(output)
    if kind == "pdf" and output is None and sys.stdout.isatty():
        raise Invalid("a PDF cannot be shown on a terminal", "write it to a file: -o report.pdf")
    settings = configured(Settings(database), config) if config else Settings(database)
    period = _period(since, until, days)
    named, _, part = name.partition("/")
    reports = with_services(settings, lambda broker: made(broker.archive, named, dict(parameters), period, time.time()))
    content = _written(reports, kind, part, period)
    if output is None:
        _print(content, kind)
        return
    try:
        output.write_bytes(content)
    except OSError as error:
        raise BrokerError(f"cannot write {output}: {error.strerror}", "choose another file with -o") from None


def _print(content: bytes, kind: str) -> None:
    """Print a report, on a terminal with escaped control characters, since users and devices supplied its texts."""
    if sys.stdout.isatty() and kind != "pdf":
        print(content.decode(), end="")
    else:
        sys.stdout.buffer.write(content)


def _kind(output: Path | None) -> str:
    suffix = output.suffix.lstrip(".").lower() if output else ""
    if suffix in FORMATS:
        return suffix
    return "html"


def _period(since: float | None, until: float | None, days: float | None) -> "Period":
    """Return the period of the report.

    :raises Invalid: when --days and --since are both given, or the period is empty
    """
    from broker.reports.registry import Period

    if days is not None and since is not None:
        raise Invalid("--days and --since exclude each other", "give one of them")
    if days is not None:
        since = (time.time() if until is None else until) - days * DAY
    if since is not None and since >= (time.time() if until is None else until):
        raise Invalid("the period ends before it begins", "give --since a day before --until")
    return Period(since, until)


def _written(reports: "Sequence[Report]", kind: str, part: str, period: "Period") -> bytes:
    if part and kind != "csv":
        raise Invalid(f"{kind} cannot have a part of a report", f"leave out /{part}, or use --format csv")
    if kind == "csv":
        return _csv(reports, part)
    if kind == "json":
        return _json(reports)
    from broker.reports.files import page, sheets

    title = reports[0].title if len(reports) == 1 else "Reports"
    return sheets(reports, title, str(period)) if kind == "pdf" else page(reports, title, str(period)).encode()


def _csv(reports: "Sequence[Report]", part: str) -> bytes:
    from broker.reports.data import csv_of, tables_of

    names = [f"{each.name}/{table}" for each in reports for table in tables_of(each)]
    found = tables_of(reports[0]).get(part) if len(reports) == 1 else None
    if found is None:
        raise Invalid("CSV needs one table", f"choose one of {', '.join(names)}" if names else "there is none yet")
    return csv_of(found).encode()


def _json(reports: "Sequence[Report]") -> bytes:
    import orjson

    from broker.reports.data import document

    content: Mapping[str, object] = {"reports": [document(each) for each in reports]}
    return orjson.dumps(document(reports[0]) if len(reports) == 1 else content, option=orjson.OPT_APPEND_NEWLINE)
