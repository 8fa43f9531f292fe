"""Runs: made side by side on all processors, and kept as JSON, so that a page can be made again without them.

Their numbers are shown as means with 95 % ranges, or medians with the least and the most.
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
"""Runs that a process gets at a time."""

C = TypeVar("C", bound=NamedTuple)
R = TypeVar("R", bound=NamedTuple)


def run_all(run: Callable[..., R], cases: Sequence[C]) -> Iterator[R]:
    """Return the results of all runs, in order; neighbours usually run in the same process, which may cache things."""
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        for number, done in enumerate(pool.map(run, cases, chunksize=TOGETHER), 1):
            yield done
            print(f"\r{number} of {len(cases)} runs", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)


def keep(path: Path, runs: Sequence[Any]) -> None:
    """Write runs, one per line, in a canonical order."""
    lines = sorted(json.dumps([run.case, *run[1:]]) for run in runs)
    path.write_text("[\n" + ",\n".join(lines) + "\n]\n")


def kept(path: Path, case: type[C], run: Callable[..., R]) -> list[R]:
    """Read stored runs."""
    return [run(case(*row[0]), *row[1:]) for row in json.loads(path.read_text())]


def mean(values: Sequence[float], digits: int = 2) -> str:
    """The mean, and how far its 95 % range goes to each side; a dash where nothing was run."""
    if not values:
        return "–"
    found = measure(values)
    return f"{found.mean:.{digits}f} ± {found.margin:.{digits}f}" if len(values) > 1 else f"{fmean(values):.{digits}f}"


def middle(values: Sequence[float]) -> str:
    """The median as percents, with the least and the most; a dash where nothing was run."""
    if not values:
        return "–"
    return f"{percent(median(values))} ({percent(min(values))} to {percent(max(values))})"


def percent(part: float) -> str:
    """Return the value as people write it."""
    return f"{100 * part:.0f} %"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return the table in Markdown, which reads well on a terminal, too."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
