"""`coget probe`: measure the rates between servers."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from coalloc.cli import interrupts, options
from coalloc.errors import SinkError, TransferFailed, UsageError
from coalloc.util.finite_range import FiniteRange
from coalloc.util.streams import say, say_json

if TYPE_CHECKING:
    from coalloc.download.route_probes import RouteProbe
    from coalloc.history.links import MeasuredLink
    from coalloc.planner.network import Link, Network
    from coalloc.probing.survey import Survey

__all__ = ["probe"]

ALL = "all at once"


@click.command(short_help="Measure the rates between servers.")
@click.argument("urls", metavar="URL...", nargs=-1, required=True)
@click.option(
    "--to", "sinks", multiple=True, metavar="URL", help="Destination: measure only to these servers. May be repeated."
)
@click.option(
    "--bytes",
    "most",
    callback=options.size,
    default="64 MB",
    show_default=True,
    metavar="SIZE",
    help="Maximum size of each measurement.",
)
@click.option(
    "--seconds",
    type=FiniteRange(min=0.1, max=3600),
    default=5.0,
    show_default=True,
    metavar="S",
    help="Maximum duration of each measurement, in seconds.",
)
@click.option(
    "--peers",
    type=click.IntRange(min=1),
    metavar="K",
    help="Measure to K other servers from each server, chosen at random.",
)
@click.option(
    "--streams",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    metavar="N",
    help="Data connections of each transfer.",
)
@click.option(
    "--blast",
    is_flag=True,
    help="Also measure the rate at which each server receives from all others at once, and sends to all at once.",
)
@click.option("-o", "--output", type=click.Path(path_type=Path, dir_okay=False), help="Network file (YAML) to write.")
@click.option(
    "--via",
    multiple=True,
    metavar="ROUTE",
    help="Measure the download of each file directly and over these depots instead; auto for all known depots.",
)
@options.broker
@options.delegate
@options.as_json
@options.verbose
def probe(
    urls: tuple[str, ...],
    sinks: tuple[str, ...],
    most: int,
    seconds: float,
    streams: int,
    output: Path | None,
    via: tuple[str, ...],
    as_json: bool,
    **given: Any,
) -> int:
    """Measure the rates between all pairs of these GridFTP servers, by short transfers between them.

    A URL names a file to send, or a directory, in which coget creates a file to send and then removes it. Received data
    are written to the same directory, and removed. Pairs without a common server are measured at the same time.

    The results are stored with their time, for `coget plan` and your broker.

    With --via, measure routes over depots instead: each URL is a file, which is downloaded in part over each route, and
    discarded. Transfers with --via auto then begin with the faster route.

    \b
    Examples:
      coget probe ftp://a.example/data/ ftp://b.example/scratch/ gsiftp://c.example/pool/
      coget probe ftp://a.example/data/x.root --to ftp://b.example/scratch/ --seconds 20
      coget probe --blast -o net.yaml ftp://a.example/ ftp://b.example/ ftp://c.example/
      coget probe --via auto https://a.example/data/x.root
    """
    if via:
        others = (sinks, output, given["peers"], given["blast"], given["delegate"], streams > 1)
        if any(others):
            raise UsageError("--via measures downloads over depots", "leave out the options for pairs of servers")
        return _probe_routes(urls, via, max(1, most), seconds, given["broker"], as_json)
    from coalloc.probing import ProbeLimits
    from coalloc.probing.survey import survey

    limits = ProbeLimits(max(1, most), seconds, streams)
    found = interrupts.run(survey(urls, sinks, limits, on_result=_print_progress, **given))
    if output:
        from coalloc.planner.documents.yaml_scenario import write

        _save(output, write(found.scenario))
    if as_json:
        say_json(_document(found))
    else:
        _print(found)
    return 0 if any(each.outcome == "ok" for each in found.measured) else TransferFailed.status


def _probe_routes(
    urls: tuple[str, ...], via: tuple[str, ...], most: int, seconds: float, broker: str | None, as_json: bool
) -> int:
    from coalloc.download.route_probes import probe_routes

    probes = interrupts.run(probe_routes(urls, via, most, seconds, broker, _print_route))
    if as_json:
        say_json({"routes": [_route_document(each) for each in probes]})
    else:
        _print_routes(probes)
    return 0 if any(each.use for each in probes) else TransferFailed.status


def _print_route(probe: "RouteProbe") -> None:
    """Print one line of progress."""
    from coalloc.model.routes import DIRECTLY
    from coalloc.util import human

    way = "directly" if probe.route == DIRECTLY else f"over {probe.route}"
    error = probe.error
    outcome = f"failed: {human.one_line(f'{error.message}; {error.remedy}')}" if error else human.rate(_rate(probe))
    say(f"{human.one_line(f'{probe.url} {way}')}: {outcome}", err=True)


def _rate(probe: "RouteProbe") -> float:
    """Return the bytes per second of a measurement; 0 if it failed."""
    return probe.use.bytes / probe.use.seconds if probe.use and probe.use.seconds else 0.0


def _route_document(probe: "RouteProbe") -> dict[str, Any]:
    use = probe.use._asdict() if probe.use else {}
    return {"url": probe.url, "error": probe.error and probe.error.message, **use, "route": probe.route}


def _print_routes(probes: "list[RouteProbe]") -> None:
    """Print a table with a row per server and route."""
    from coalloc.display.table import ReportPrinter, table
    from coalloc.model.routes import DIRECTLY
    from coalloc.util import human

    rows = [
        [
            human.one_line(each.url),
            "direct" if each.route == DIRECTLY else each.route,
            human.duration(each.use.opening_seconds) if each.use else "failed",
            human.duration(each.use.beginning_seconds) if each.use else "",
            human.rate(_rate(each)) if each.use else "",
        ]
        for each in probes
    ]
    ReportPrinter(sys.stdout).print(table(["file", "route", ">ready after", ">first MiB", ">rate"], rows))


def _save(path: Path, text: str) -> None:
    try:
        path.write_text(text)
    except OSError as error:
        raise SinkError(f"cannot write to {path}: {error.strerror}", "choose another file with -o") from None


def _print_progress(measured: "MeasuredLink") -> None:
    """Print one line of progress."""
    from coalloc.util import human

    rate = measured.rate
    outcome = f"failed: {human.one_line(measured.error or '')}" if rate is None else human.rate(rate)
    say(f"{human.one_line(f'{measured.source} -> {measured.sink}')}: {outcome}", err=True)


def _document(found: "Survey") -> dict[str, Any]:
    from coalloc.planner.documents.scenario import document

    keys = ("source", "sink", "start", "end", "bytes", "streams", "outcome", "error")
    return {
        "measured": [{**{key: getattr(each, key) for key in keys}, "rate": each.rate} for each in found.measured],
        "network": document(found.scenario),
    }


def _print(found: "Survey") -> None:
    """Print a table with a row per source and a column per sink."""
    from coalloc.display.table import ReportPrinter, table

    network = found.scenario.network
    names = list(network.hosts)
    limits = {name: host.isps[0] for name, host in network.hosts.items() if host.isps}
    headings = ["from, to", *(f">{name}" for name in names)]
    rows = [[name, *(_cell(network, name, sink) for sink in names)] for name in names]
    if limits:
        headings.append(f">{ALL}")
        rows = [[*row, _limit(limits[row[0]].up if row[0] in limits else None)] for row in rows]
        rows.append([ALL, *(_limit(limits[name].down if name in limits else None) for name in names), ""])
    ReportPrinter(sys.stdout).print(table(headings, rows))


def _cell(network: "Network", source: str, sink: str) -> str:
    from coalloc.planner.network import LinkKey

    link = network.links.get(LinkKey(source, sink))
    return "" if source == sink else "?" if link is None else _link(link)


def _link(link: "Link") -> str:
    from coalloc.util import human

    old = link.age is not None and link.age > 60
    return human.rate(link.capacity) + (f", {human.duration(link.age or 0)} ago" if old else "")


def _limit(capacity: int | None) -> str:
    from coalloc.util import human

    return "?" if capacity is None else human.rate(capacity)
