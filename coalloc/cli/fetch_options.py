"""The options of `get` for everyday use, named as curl names them."""

from collections.abc import Callable
from typing import Any, TypeVar

import click

from coalloc.util.finite_range import FiniteRange

__all__ = ["fetch_options"]

LONGEST = 3e6
"""Maximum seconds of a time limit."""

F = TypeVar("F", bound=Callable[..., Any])


def _rate(ctx: click.Context, param: click.Parameter, value: str | None) -> int | None:
    """Parse a rate as bytes per second; a callback of click."""
    if value is None:
        return None
    from coalloc.planner.documents import units

    try:
        if rate := units.rate(value):
            return rate
    except ValueError as error:
        raise click.BadParameter(str(error), ctx, param) from None
    raise click.BadParameter("it is 0", ctx, param)


SECONDS = FiniteRange(min=0, max=LONGEST, min_open=True)

limit_rate = click.option(
    "--limit-rate",
    callback=_rate,
    metavar="RATE",
    help="Highest rate of the whole command, such as '10 MB/s' or '200 Mbit/s'.  [default: limit_rate of "
    "config.toml, for all coget processes together]",
)

_OPTIONS = (
    limit_rate,
    click.option(
        "--retry",
        "retries",
        type=click.IntRange(min=0, max=1000),
        metavar="N",
        default=4,
        show_default=True,
        help="Attempts after a failure of a source; 0 for none.",
    ),
    click.option(
        "--connect-timeout",
        "connect_seconds",
        type=SECONDS,
        metavar="SECONDS",
        default=10.0,
        show_default=True,
        help="Time limit for a connection to a server.",
    ),
    click.option(
        "--max-time",
        "max_seconds",
        type=SECONDS,
        metavar="SECONDS",
        help="Time limit for each file.  [default: none]",
    ),
    click.option(
        "--no-clobber",
        is_flag=True,
        help="Replace no existing file of other content, even if you chose its name.",
    ),
)


def fetch_options(command: F) -> F:
    """Add these options."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command
