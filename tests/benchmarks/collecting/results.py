"""Runs, made in parallel on all processors and stored as JSON, so that a page can be made again without them."""

import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

__all__ = ["keep", "kept", "run_all"]

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
