"""Execution of runs on all processors, their storage as JSON, and tables of their results.

A page can be made again from stored runs. Values are shown as means with 95 % ranges, or as medians with the minimum
and the maximum.
"""

import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from statistics import fmean, median
from typing import Any, NamedTuple, TypeVar

from tests.benchmarks.paper.measures import measure

__all__ = ["keep", "kept", "mean", "middle", "percent", "run_all", "table"]

TOGETHER = 11
"""Number of runs that a process gets at a time."""

C = TypeVar("C", bound=NamedTuple)
R = TypeVar("R", bound=NamedTuple)


def run_all(run: Callable[..., R], cases: Sequence[C]) -> Iterator[R]:
    """Yield the results of all cases, in order. Adjacent cases usually run in the same process and share its caches."""
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        for number, done in enumerate(pool.map(run, cases, chunksize=TOGETHER), 1):
            yield done
            print(f"\r{number} of {len(cases)} runs", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)


def keep(path: Path, runs: Sequence[Any]) -> None:
    """Write runs to a JSON file, one per line, sorted."""
    lines = sorted(json.dumps([run.case, *run[1:]]) for run in runs)
    path.write_text("[\n" + ",\n".join(lines) + "\n]\n")


def kept(path: Path, case: type[C], run: Callable[..., R]) -> list[R]:
    """Read stored runs."""
    return [run(case(*row[0]), *row[1:]) for row in json.loads(path.read_text())]


def mean(values: Sequence[float], digits: int = 2) -> str:
    """Return the mean and the half width of its 95 % range, as text; a dash if there are no values."""
    if not values:
        return "–"
    found = measure(values)
    return f"{found.mean:.{digits}f} ± {found.margin:.{digits}f}" if len(values) > 1 else f"{fmean(values):.{digits}f}"


def middle(values: Sequence[float]) -> str:
    """Return the median with the minimum and the maximum, in percent; a dash if there are no values."""
    if not values:
        return "–"
    return f"{percent(median(values))} ({percent(min(values))} to {percent(max(values))})"


def percent(part: float) -> str:
    """Return a share from 0 to 1 in percent, as text."""
    return f"{100 * part:.0f} %"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table in Markdown, which is readable on a terminal, too."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
