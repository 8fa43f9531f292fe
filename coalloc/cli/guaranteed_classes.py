"""Classes of files with guaranteed rates, as options and in YAML files.

A file has a rate, or records per second and their size, by pattern: `"num/*": {records: 25, size: 40 kB, sure: 99}`.
"""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from coalloc.cli import options
from coalloc.errors import UsageError

if TYPE_CHECKING:
    from coalloc.collect.values import GuaranteedClass
    from coalloc.planner.documents.parts import DocumentPart

__all__ = ["parse"]

USUAL = 95.0
"""Percentage of the seconds, if none is given."""
LIKE = "'*.h5': {rate: 5 MB/s, sure: 95}"


def parse(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> "tuple[GuaranteedClass, ...]":
    """Parse classes of files with guaranteed rates; a callback of click."""
    found: list[GuaranteedClass] = []
    for value in values:
        found += _from_file(Path(value)) if value.endswith((".yaml", ".yml")) else [_class(ctx, param, value)]
    return tuple(found)


def _class(ctx: click.Context, param: click.Parameter, value: str) -> "GuaranteedClass":
    from coalloc.collect.values import GuaranteedClass

    pattern, _, wanted = value.rpartition("=")
    rate, at, percent = wanted.partition("@")
    if not pattern:
        raise click.BadParameter("write PATTERN=RATE@PERCENT, such as '*.h5=5 MB/s@95'", ctx, param)
    share = options.SHARE.convert(percent.removesuffix("%"), param, ctx) if at else USUAL
    return GuaranteedClass(pattern, options.rate(ctx, param, rate), share / 100)


def _from_file(path: Path) -> "list[GuaranteedClass]":
    """Read classes from a YAML file. :raises UsageError: when it cannot be read, or a part of it is invalid"""
    from coalloc.cli.network_plan import yaml_text
    from coalloc.planner.documents.yaml_scenario import parsed

    return parsed(yaml_text(path), str(path), _from_document, "docs/howto/collect.md")


def _from_document(document: object) -> "list[GuaranteedClass]":
    from coalloc.planner.documents.parts import DocumentPart

    found = [_of_part(pattern, part) for pattern, part in DocumentPart(document).items(LIKE)]
    if not found:
        raise UsageError("it has no classes of files", f"write for example {LIKE}")
    return found


def _of_part(pattern: str, part: "DocumentPart") -> "GuaranteedClass":
    from coalloc.collect.values import GuaranteedClass
    from coalloc.planner.documents import units

    fields = part.fields("rate", "records", "size", "sure")
    if fields.keys() - {"sure"} not in ({"rate"}, {"records", "size"}):
        raise part.wrong("it needs a rate, or records per second and their size", f"write for example {LIKE}")
    if "rate" in fields:
        rate = float(fields["rate"].read(units.rate))
    else:
        rate = fields["records"].read(units.amount) * fields["size"].read(units.size)
    percent = fields["sure"].read(units.amount) if "sure" in fields else USUAL
    return GuaranteedClass(pattern, rate, percent / 100)
