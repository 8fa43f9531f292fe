"""`coget search` and `coget datasets`: what a broker knows."""

import json
import sys
from typing import TYPE_CHECKING, Any

import click

from coalloc.cli import interrupts, options

if TYPE_CHECKING:
    from coalloc.brokerclient import Found

__all__ = ["datasets", "search"]


@click.command(short_help="Find datasets of a broker by how their names begin.")
@click.argument("beginning", default="")
@click.option("--most", type=click.IntRange(min=1), default=100, show_default=True, metavar="N", help="Show at most N.")
@options.broker
@options.as_json
def search(beginning: str, most: int, broker: str | None, as_json: bool) -> None:
    """List datasets whose names begin with BEGINNING, by name; SCOPE:BEGINNING within a scope.

    \b
    Examples:
      coget search --broker https://broker.example run1:2024/
    """
    from coalloc import api
    from coalloc.progress import human

    found = interrupts.run(api.search(beginning, most, broker))
    if as_json:
        click.echo(json.dumps([each._asdict() for each in found], indent=2))
        return
    for each in found:
        size = "?" if each.size is None else human.size(each.size)
        click.echo(f"{size:>9}  {human.one_line(each.name)}")
    if not found:
        click.echo("no dataset begins so", err=True)


@click.command(short_help="Show where datasets are, and what to expect of each replica.")
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@options.broker
@options.as_json
def datasets(names: tuple[str, ...], broker: str | None, as_json: bool) -> None:
    """Show where a broker knows datasets to be, the best replica first, and what it expects of each.

    \b
    Examples:
      coget datasets --broker https://broker.example run1:2024/x.root
    """
    from coalloc import api

    found = interrupts.run(api.datasets(names, broker))
    if as_json:
        click.echo(json.dumps([_document(each) for each in found], indent=2))
        return
    for each in found:
        _print(each)


def _document(found: "Found") -> dict[str, Any]:
    file = found.file
    return {
        "name": found.dataset,
        "size": file.size,
        "checksums": {checksum.algorithm: checksum.value for checksum in file.checksums},
        "replicas": [
            {"url": url, **{name: value for name, value in estimate._asdict().items() if name != "bounds"}}
            | {"rate_p10_p90": estimate.bounds}
            for url, estimate in found.expected.items()
        ],
    }


def _print(found: "Found") -> None:
    from coalloc.progress import human
    from coalloc.progress.table import console, table

    out, file = console(sys.stdout), found.file
    sums = ", ".join(f"{checksum.algorithm} {checksum.value}" for checksum in file.checksums)
    size = "size unknown" if file.size is None else human.size(file.size)
    out.print(human.one_line(f"{found.dataset}: {size}{', ' if sums else ''}{sums}"))
    rows = [
        (
            human.one_line(url),
            "?" if estimate.rate is None else human.rate(estimate.rate),
            "" if estimate.bounds is None else f"{human.rate(estimate.bounds[0])} - {human.rate(estimate.bounds[1])}",
            human.one_line(estimate.reason),
        )
        for url, estimate in found.expected.items()
    ]
    out.print(table(("replica", ">rate", ">likely", "why"), rows))
