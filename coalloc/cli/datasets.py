"""`coget search`, `coget datasets` and `coget register`: list a broker's datasets and replicas, register new ones."""

import sys
from typing import TYPE_CHECKING, Any

import click

from coalloc.cli import interrupts, options
from coalloc.errors import UsageError
from coalloc.safe_text import redact
from coalloc.util.streams import say, say_json

if TYPE_CHECKING:
    from coalloc.model.forecasts import FoundReplicas

__all__ = ["datasets", "register", "search"]


@click.command(short_help="Find a broker's datasets by the beginning of their names.")
@click.argument("beginning", default="")
@click.option(
    "--most", type=click.IntRange(min=1), default=100, show_default=True, metavar="N", help="Maximum number of rows."
)
@options.broker
@options.as_json
def search(beginning: str, most: int, broker: str | None, as_json: bool) -> None:
    """List datasets whose names begin with BEGINNING, sorted by name; SCOPE:BEGINNING within a scope.

    \b
    Examples:
      coget search --broker https://broker.example run1:2024/
    """
    from coalloc import api
    from coalloc.util import human

    found = interrupts.run(api.search(beginning, most, broker))
    if as_json:
        say_json([each._asdict() for each in found])
        return
    for each in found:
        size = "?" if each.size is None else human.size(each.size)
        say(f"{size:>9}  {human.one_line(each.name)}")
    if not found:
        say("no dataset name begins with this", err=True)


@click.command(short_help="Show the replicas of datasets, with a forecast for each.")
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@options.broker
@options.as_json
def datasets(names: tuple[str, ...], broker: str | None, as_json: bool) -> None:
    """Show the replicas of datasets that a broker knows, the best first, with the forecast for each.

    \b
    Examples:
      coget datasets --broker https://broker.example run1:2024/x.root
    """
    from coalloc import api

    found = interrupts.run(api.datasets(names, broker))
    if as_json:
        say_json([_document(each) for each in found])
        return
    for each in found:
        _print(each)


@click.command(short_help="Register replicas of a dataset with a broker.")
@click.argument("name")
@click.argument("urls", nargs=-1, required=True, metavar="URL...")
@options.broker
@options.as_json
def register(name: str, urls: tuple[str, ...], broker: str | None, as_json: bool) -> None:
    """Register these URLs with a broker as replicas of dataset NAME; the broker creates the dataset if needed.

    coget asks the servers for the file's size, and for its checksum where they can compute it. The addresses must be
    below endpoints of the broker; the token must belong to a curator. A URL that ends with a slash is a directory of a
    GridFTP server: every file below it becomes a dataset, named NAME and the file's path below the directory.

    \b
    Examples:
      coget register run1:2024/x.root gsiftp://a.example/data/2024/x.root gsiftp://b.example/store/x.root
      coget register run1:2024 gsiftp://a.example/data/2024/
    """
    from coalloc import api
    from coalloc.util import human

    if any(url.endswith("/") for url in urls):
        _register_directory(name, urls, broker, as_json)
        return
    file, news = interrupts.run(api.register(name, urls, broker))
    sums = {checksum.algorithm: checksum.value for checksum in file.checksums}
    if as_json:
        content = {
            "name": name,
            "size": file.size,
            "checksums": sums,
            "replicas": [redact(each.url) for each in file.replicas],
        }
        say_json({**content, "new": news})
        return
    shown = ", ".join(f"{algorithm} {value}" for algorithm, value in sums.items()) or "no checksum"
    size = human.size(file.size or 0)
    say(f"{name}: {size}, {shown}; {news} of {len(file.replicas)} replicas are new")


def _register_directory(name: str, urls: tuple[str, ...], broker: str | None, as_json: bool) -> None:
    from coalloc import api
    from coalloc.util import human

    if len(urls) > 1:
        raise UsageError("only one directory can be registered at a time", "register them one by one")
    result = interrupts.run(api.register_directory(name, urls[0], broker))
    if as_json:
        refused = {each: error.message for each, error in result.refused.items()}
        say_json({"name": name, **result._asdict(), "refused": refused})
    else:
        say(f"{name}: {result.files} files, {human.size(result.bytes)}; {result.new} replicas are new")
        for each, error in result.refused.items():
            say(f"left out: {each}: {error.message}", err=True)
    for error in result.refused.values():
        raise click.exceptions.Exit(error.status)


def _document(found: "FoundReplicas") -> dict[str, Any]:
    file = found.file
    return {
        "name": found.dataset,
        "size": file.size,
        "checksums": {checksum.algorithm: checksum.value for checksum in file.checksums},
        "replicas": [
            {"url": redact(url), **{name: value for name, value in estimate._asdict().items() if name != "bounds"}}
            | {"rate_p10_p90": estimate.bounds}
            for url, estimate in found.expected.items()
        ],
    }


def _print(found: "FoundReplicas") -> None:
    from coalloc.display.table import ReportPrinter, table
    from coalloc.util import human

    out, file = ReportPrinter(sys.stdout), found.file
    sums = ", ".join(f"{checksum.algorithm} {checksum.value}" for checksum in file.checksums)
    size = "size unknown" if file.size is None else human.size(file.size)
    out.print(human.one_line(f"{found.dataset}: {size}{', ' if sums else ''}{sums}"))
    rows = [
        (
            human.one_line(redact(url)),
            "?" if estimate.rate is None else human.rate(estimate.rate),
            "" if estimate.bounds is None else f"{human.rate(estimate.bounds[0])} - {human.rate(estimate.bounds[1])}",
            human.one_line(estimate.reason),
        )
        for url, estimate in found.expected.items()
    ]
    out.print(table(("replica", ">rate", ">likely", "why"), rows))
