"""`coget plan`: show a plan without moving any data."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from coalloc.cli import interrupts, options
from coalloc.cli.failures import CommandFailed
from coalloc.errors import CoallocError, UsageError
from coalloc.util.streams import say_json

if TYPE_CHECKING:
    from coalloc.model.plans import Plan, PlannedShare
    from coalloc.model.routes import PlannedRoute

__all__ = ["plan"]

FILE = click.Path(path_type=Path, dir_okay=False)
PICTURES = (".svg", ".png", ".pdf")


@click.command(short_help="Show the plan for a file or a network, without moving data.")
@options.sources(required=False)
@options.transfer_options
@options.deadline
@options.as_json
@options.verbose
@click.option(
    "--metalink", is_flag=True, help="Print a Metalink 4 file of the sources, the best one first, with a checksum."
)
@click.option("--network", type=FILE, help="Plan the transfers of this network file (YAML), without SOURCE.")
@click.option("--method", metavar="NAME", help="With --network: also simulate this method of `collect`.")
@click.option("--picture", type=FILE, help="With --network: picture of the plan to write: .svg, .png or .pdf.")
def plan(
    as_json: bool, metalink: bool, network: Path | None, method: str | None, picture: Path | None, **given: Any
) -> None:
    """Show how a file would be fetched, without moving any data.

    coget asks each server for the file's size. From your history, it then shows the expected share of each source and
    the expected duration.

    With --by, it shows the probability that the file is complete in time, and ends with status 9 if that is less than
    --sure.

    With --network, it shows the paths of files through a network, over relays where that is faster, with the time and
    the limits of the plan. Rates that the network file lacks come from `coget probe`, and from the broker of --broker.

    \b
    Examples:
      coget plan ftp://a.example/x ftp://b.example/x
      coget plan --metalink ftp://a.example/x ftp://b.example/x > x.meta4
      coget plan --network net.yaml --picture plan.svg
    """
    if as_json and metalink:
        raise UsageError("--json and --metalink exclude each other", "leave one of them out")
    _refuse_nonsense(network, method, picture, metalink, given["sources"], given["by"])
    if network:
        from coalloc.cli.network_plan import plan_network

        plan_network(network, method, picture, given["broker"], as_json)
        return
    from coalloc import api

    request = options.request(**given)
    if metalink:
        click.echo(interrupts.run(api.metalink(request)), nl=False)
        return
    plans = interrupts.run(api.plan(request))
    refusal = _refusal(plans)
    if as_json:
        from coalloc.display import json as documents

        if refusal:
            raise CommandFailed(refusal, documents.plans(plans))
        say_json(documents.plans(plans))
    else:
        _print(plans)
    if refusal:
        raise refusal


def _refusal(plans: "Sequence[Plan]") -> CoallocError | None:
    """Return the error of a plan whose deadline will probably not be kept."""
    from coalloc.download.outlook import refused

    for made in plans:
        view = made.deadline
        unknown = any(share.error is None and not share.estimate.rate for share in made.shares)
        if view and view.chance is not None and view.chance < view.deadline.sure and not unknown:
            return refused(made.name, view)
    return None


def _refuse_nonsense(
    network: Path | None,
    method: str | None,
    picture: Path | None,
    metalink: bool,
    sources: Sequence[str],
    by: str | None,
) -> None:
    if bool(network) == bool(sources):
        raise UsageError("a plan needs either sources or a network", "give a SOURCE, or --network")
    if network and metalink:
        raise UsageError("--metalink makes no sense with --network", "leave one of them out")
    if by and (network or metalink):
        raise UsageError(
            f"--by makes no sense with {'--network' if network else '--metalink'}", "leave one of them out"
        )
    if (method or picture) and not network:
        raise UsageError(f"--{'method' if method else 'picture'} makes no sense without --network", "leave it out")
    if picture and picture.suffix not in PICTURES:
        raise UsageError(f"unsupported image format: {picture}", f"use one of {', '.join(PICTURES)}")


def _print(plans: "Sequence[Plan]") -> None:
    from coalloc.display.promises import outlook
    from coalloc.display.table import ReportPrinter, table
    from coalloc.util import human

    out = ReportPrinter(sys.stdout)
    for made in plans:
        time = "time unknown" if made.seconds is None else f"about {human.duration(made.seconds)}"
        if made.bounds:
            time += f" (likely {human.duration(made.bounds[0])} to {human.duration(made.bounds[1])})"
        out.print(f"{human.one_line(made.name)}: {human.size(made.size)}, {time} ({made.strategy})")
        out.print(human.one_line(made.rationale))
        if made.deadline:
            out.print(f"{outlook(made.deadline)}; {_beginning(made)}")
        names = human.labels([share.url for share in made.shares])
        rows = [_row(name, share) for name, share in zip(names, made.shares, strict=True)]
        out.print(table(("source", ">share", ">bytes", ">set-up", ">rate", ">likely", "why"), rows))
        for name, share in zip(names, made.shares, strict=True):
            if share.routes and not share.error:
                out.print(f"{name}: {_routes(share.routes)}")
            if share.error:
                out.print(human.about(name, share.url, share.error))


def _beginning(made: "Plan") -> str:
    from coalloc.util import human

    usable = sum(share.error is None for share in made.shares)
    if made.needed is None or made.needed >= usable:
        return "all sources are needed from the start"
    spared = human.counted(usable - made.needed, "source")
    return f"the transfer begins without {spared}, which it uses only if needed"


def _row(name: str, share: "PlannedShare") -> tuple[str, ...]:
    from coalloc.util import human

    setup, rate, bounds = share.estimate.setup_seconds, share.estimate.rate, share.estimate.bounds
    return (
        name,
        human.percent(share.fraction, 1),
        human.size(share.bytes),
        "?" if setup is None else human.duration(setup),
        "?" if rate is None else human.rate(rate),
        "" if bounds is None else f"{human.rate(bounds[0])} - {human.rate(bounds[1])}",
        "not used, see below" if share.error else human.one_line(share.estimate.reason),
    )


def _routes(routes: "Sequence[PlannedRoute]") -> str:
    """Return a sentence about the routes to a server, and why the first one begins."""
    from coalloc.model.routes import DIRECTLY
    from coalloc.util import human

    ways = ["directly" if each.route == DIRECTLY else f"over {each.route}" for each in routes]
    times = [f"{human.duration(each.seconds)} for 1 MiB" if each.seconds else "" for each in routes]
    if len(routes) == 1:
        return ways[0]
    if all(times):
        return f"first {ways[0]} ({times[0]}), then also {ways[1]} ({times[1]})"
    return f"{' and '.join(ways)}; which is faster is unknown: measure it with coget probe --via auto"
