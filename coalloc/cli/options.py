"""The options that several commands share, and the request that `get` and `plan` build from them."""

import logging
import re
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from coalloc.errors import UsageError
from coalloc.util import streams, trace
from coalloc.util.finite_range import FiniteRange

if TYPE_CHECKING:
    from coalloc.api import Request
    from coalloc.model.promises import Deadline

__all__ = [
    "SHARE",
    "as_json",
    "broker",
    "data_hosts",
    "deadline",
    "delegate",
    "engine",
    "header",
    "moment",
    "overwrite",
    "rate",
    "request",
    "size",
    "sources",
    "transfer_options",
    "verbose",
    "via",
]

STRATEGIES = ("single", "brute", "history", "conservative", "aggressive", "adaptive")
ENGINES = ("auto", "gridftp", "globus-url-copy")

LONGEST = 3e8
"""Maximum seconds until a time that a user gives."""
CLOCK = re.compile(r"\d{1,2}:\d{2}(:\d{2})?")

F = TypeVar("F", bound=Callable[..., Any])


def sources(required: bool = True) -> Callable[[F], F]:
    """Add the SOURCE... argument."""
    metavar = "SOURCE..." if required else "[SOURCE]..."
    return click.argument("sources", metavar=metavar, nargs=-1, required=required)


def size(ctx: click.Context, param: click.Parameter, value: str) -> int:
    """Parse the value of a size option as bytes; a callback of click."""
    from coalloc.planner.documents import units

    try:
        return units.size(value)
    except ValueError as error:
        raise click.BadParameter(str(error), ctx, param) from None


SHARE = FiniteRange(50, 99.9)
"""Percentages with which a promise may be wanted."""


def rate(ctx: click.Context, param: click.Parameter, value: str) -> int:
    """Parse the value of a rate option as bytes per second, at least 1; a callback of click."""
    from coalloc.planner.documents import units

    try:
        if parsed := units.rate(value):
            return parsed
        raise ValueError("it is 0")
    except ValueError as error:
        raise click.BadParameter(str(error), ctx, param) from None


def moment(text: str) -> float:
    """Parse a time as seconds since the epoch: 14:05, 2030-01-31T12:00, or +10 min from now.

    A time without a date is its next occurrence; times are local unless they have a zone.

    :raises UsageError: if it is no time, or has passed
    """
    import time
    from datetime import datetime, timedelta

    from coalloc.planner.documents import units

    now = datetime.now()
    try:
        if text.startswith("+"):
            parsed = time.time() + units.seconds(text[1:])
        elif CLOCK.fullmatch(text):
            at = datetime.combine(now.date(), datetime.fromisoformat(f"2000-01-01T{text:0>5}").time())
            parsed = (at if at > now else at + timedelta(days=1)).timestamp()
            if parsed <= time.time():  # the clock is set back in this hour, which comes twice
                parsed = at.replace(fold=1).timestamp()
        else:
            parsed = datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError, OSError):
        raise UsageError(f"{text!r} is not a time", "write it as 14:05, 2030-01-31T12:00 or '+10 min'") from None
    if parsed <= time.time():
        raise UsageError(f"the time {text} has passed", "give a later one")
    if parsed > time.time() + LONGEST:
        raise UsageError(f"the time {text} is more than ten years ahead", "give an earlier one")
    return parsed


def _show_requests(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    """Show on standard error what servers are asked from now on, with the seconds since now."""
    if value and not trace.is_on():
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(streams.Plainly("%(elapsed)8.3f s  %(message)s"))
        began = time.time()

        def add_time(record: logging.LogRecord) -> bool:
            record.elapsed = record.created - began
            return True

        handler.addFilter(add_time)
        trace.log.addHandler(handler)
        trace.log.setLevel(logging.DEBUG)


verbose = click.option(
    "-v",
    "--verbose",
    is_flag=True,
    expose_value=False,
    callback=_show_requests,
    help="Show on standard error what is asked of which server, and when.",
)

as_json = click.option("--json", "as_json", is_flag=True, help="Print the result as JSON on standard output.")

engine = click.option(
    "--engine",
    type=click.Choice(ENGINES),
    default="auto",
    show_default=True,
    help="GridFTP client: coget's own, or the tool globus-url-copy.",
)

broker = click.option(
    "--broker",
    metavar="URL",
    help="Broker that knows datasets by name, runs tasks, and collects measured rates.  "
    "[default: COGET_BROKER, or config.toml]",
)

data_hosts = click.option(
    "--data-host",
    "data_hosts",
    multiple=True,
    metavar="HOST",
    help="Host from which servers may send data, as striped servers and dCache do. May be repeated.",
)

delegate = click.option(
    "--delegate",
    "delegate",
    multiple=True,
    metavar="HOST",
    help="Host that receives a limited proxy for an hour if it insists on one (gsiftp). May be repeated.",
)

via = click.option(
    "--via",
    multiple=True,
    metavar="ROUTE",
    help="Route over depots: A,B for exactly these, A,* to let A choose further ones, auto for both the direct route "
    "and the best depot, none for no depot. HOST=ROUTE is for one server. May be repeated.  [default: config.toml]",
)

header = click.option(
    "-H",
    "--header",
    "headers",
    multiple=True,
    metavar="NAME: VALUE",
    help="Header for the servers of the URLs that you give. @FILE reads lines from a file, @- from standard input, "
    "which keeps secrets out of the list of processes. May be repeated.",
)

overwrite = click.option(
    "--overwrite",
    is_flag=True,
    help="Replace existing files of other content if a Metalink, a directory or a broker chose the name.",
)

_TRANSFER_OPTIONS = (
    click.option(
        "--strategy",
        type=click.Choice(STRATEGIES),
        default="adaptive",
        show_default=True,
        help="Strategy that splits the file over the sources.",
    ),
    click.option(
        "--blocks",
        type=click.IntRange(min=1),
        metavar="K",
        help="Number of blocks, for conservative and aggressive only.  [default: 5, 10 or 15, by size]",
    ),
    click.option(
        "--streams",
        type=click.IntRange(min=1),
        metavar="N",
        help="Data connections to each source.  [default: more to distant sources, while the rate grows]",
    ),
    click.option(
        "--max-sources",
        type=click.IntRange(min=1),
        metavar="N",
        help="Maximum number of sources at the same time, at most 64.  [default: 64]",
    ),
    engine,
    broker,
    data_hosts,
    delegate,
    via,
    header,
)


def deadline(command: F) -> F:
    """Add the options for when a file is to be complete."""
    command = click.option(
        "--sure",
        type=SHARE,
        metavar="PERCENT",
        help="Probability with which --by must hold, 50 to 99.9.  [default: 95]",
    )(command)
    return click.option(
        "--by",
        metavar="TIME",
        help="Time by which the file must be complete: 14:05, 2030-01-31T12:00 or '+10 min'. A transfer that will "
        "probably be late is refused; one that has time uses few sources.",
    )(command)


def transfer_options(command: F) -> F:
    """Add the options for how a file is fetched."""
    for option in reversed(_TRANSFER_OPTIONS):
        command = option(command)
    return command


def request(
    sources: tuple[str, ...],
    output: Path | None = None,
    checksum: str | None = None,
    by: str | None = None,
    sure: float | None = None,
    **how: Any,
) -> "Request":
    """Build the request to the API; `how` are the values of the other `transfer_options`.

    :raises UsageError: for options that contradict each other
    """
    from coalloc.api import Credentials, Request
    from coalloc.credentials.given_headers import read_headers

    _refuse_nonsense(**how)
    how["data_hosts"], how["delegate"] = frozenset(how["data_hosts"]), frozenset(how["delegate"])
    how["via"] = how["via"] or None
    how["credentials"] = Credentials(read_headers(how.pop("headers")))
    return Request(
        sources, output, checksum=checksum, deadline=_deadline(by, sure, how["strategy"], how.get("staging")), **how
    )


def _deadline(by: str | None, sure: float | None, strategy: str, staging: tuple[str, ...] | None) -> "Deadline | None":
    if by is None:
        if sure is not None:
            raise UsageError("--sure makes no sense without --by", "leave it out, or give a time with --by")
        return None
    if strategy != "adaptive":
        raise UsageError(
            f"--by makes no sense with --strategy {strategy}", "use adaptive, which adds sources as needed"
        )
    if staging is not None:
        raise UsageError("--by makes no sense with --staging, which uses all relays", "leave one of them out")
    from coalloc.model.promises import Deadline

    return Deadline(moment(by)) if sure is None else Deadline(moment(by), sure / 100)


def _refuse_nonsense(
    strategy: str,
    blocks: int | None,
    max_sources: int | None,
    engine: str,
    data_hosts: tuple[str, ...],
    via: tuple[str, ...],
    overwrite: bool = False,
    no_clobber: bool = False,
    **_: Any,
) -> None:
    if overwrite and no_clobber:
        raise UsageError("--overwrite and --no-clobber contradict each other", "leave one of them out")
    if blocks:
        from coalloc.schedule.policies import make

        make(strategy, blocks)  # refuses blocks for a strategy without them
    if strategy == "single" and max_sources and max_sources > 1:
        raise UsageError(
            f"--max-sources {max_sources} makes no sense with --strategy single, which uses one",
            "leave one of them out",
        )
    if engine == "globus-url-copy" and data_hosts:
        raise UsageError(
            "--data-host makes no sense with --engine globus-url-copy, which accepts any data host",
            "leave one of them out",
        )
    if engine == "globus-url-copy" and via:
        raise UsageError(
            "--via makes no sense with --engine globus-url-copy, which connects directly",
            "leave one of them out, or run globus-url-copy itself with proxychains4",
        )
