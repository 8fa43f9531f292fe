"""`coget plan --network`: how files would go through a network, in words and as a picture."""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from coalloc.cli import interrupts
from coalloc.errors import UsageError

if TYPE_CHECKING:
    from coalloc.planner.plan import TransferPlan
    from coalloc.planner.scenario import Scenario

__all__ = ["load", "plan_network"]


def load(path: Path) -> "Scenario":
    """The network in a file. :raises UsageError: when it cannot be read, or is none"""
    from coalloc.planner.written import read

    try:
        return read(path.read_text(), str(path))
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}", "name a YAML file") from None
    except UnicodeDecodeError:
        raise UsageError(f"{path} is no text", "name a YAML file") from None


def plan_network(path: Path, picture: Path | None, broker: str | None, as_json: bool) -> None:
    """Say how what a network's file wants moved would be moved, and draw it."""
    from coalloc.planner.answer import answer
    from coalloc.planner.least import least_makespan
    from coalloc.survey import filled

    scenario = load(path)
    if not scenario.demand.files:
        raise UsageError(f"{path} names no files", "say what is to be moved: files: {x: {size: 8 GB, at: a, to: b}}")
    scenario = interrupts.run(filled(scenario, broker))
    made = least_makespan(scenario.network, scenario.demand)
    if picture:
        from coalloc.pictures import bars, draw

        draw(picture, scenario.network, made, bars(made))
    if as_json:
        click.echo(json.dumps(answer(scenario.network, made), indent=2))
    else:
        _print(path, scenario, made)


def _print(path: Path, scenario: "Scenario", plan: "TransferPlan") -> None:
    from coalloc.progress import human
    from coalloc.progress.table import console, table

    out = console(sys.stdout)
    files, seconds = scenario.demand.files, float(plan.makespan)
    direct = (
        "" if plan.direct in (None, plan.makespan) else f"; without relays {human.duration(float(plan.direct or 0))}"
    )
    what = f"{human.counted(len(files), 'file')}, {human.size(scenario.demand.size)}"
    out.print(f"{human.one_line(str(path))}: {what}, about {human.duration(seconds)} ({plan.method}){direct}")
    out.print(human.one_line(f"{plan.reason[:1].upper()}{plan.reason[1:]}."))
    rows = [
        (
            human.one_line(" -> ".join(each.hosts)),
            human.one_line(each.file),
            human.size(each.bytes),
            human.rate(each.bytes / seconds) if seconds else "",
        )
        for each in plan.paths
    ]
    out.print(table(("path", "file", ">bytes", ">rate"), rows))
    for file in files:
        if file.deadline is not None and seconds > file.deadline:
            late, when = human.duration(seconds), human.duration(file.deadline)
            out.print(human.one_line(f"{file.name} would be late: it is wanted after {when}, and there after {late}"))
