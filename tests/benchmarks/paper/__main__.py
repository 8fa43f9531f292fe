"""The experiments of the co-allocation paper, on the testbed and in virtual time.

    python -m tests.benchmarks.paper [EXPERIMENT...] [--rounds N] [--page]

Prints a table for each figure. `--page` also writes the tables and pictures into docs/explanation/paper.md, which
explains the measurements. Needs root, and the packages that `make bench-paper` installs.
"""

import argparse
import random
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from itertools import product
from pathlib import Path
from threading import Event

from tests.benchmarks.bench import in_memory
from tests.benchmarks.paper.experiments import EXPERIMENTS, SCALE, SIZES, Experiment
from tests.benchmarks.paper.measures import Record
from tests.benchmarks.paper.network import Failure, Network
from tests.benchmarks.paper.page import update
from tests.benchmarks.paper.tables import LARGE, Results, tables
from tests.benchmarks.paper.virtual import run_virtually

AT_ONCE = 4
"""Number of networks that run at the same time. Each carries at most 100 Mbit/s, so two processors are mostly idle."""
ROUNDS = 5
VIRTUAL_ROUNDS = 10


def run_really(experiment: Experiment, files: Path, rounds: int, stop: Event) -> list[Record]:
    """Run an experiment on the testbed, one run after the other; each round has its own order and weather.

    In an extra round before, each server delivers the largest file alone, which gives `history` its forecasts.
    """
    records: list[Record] = []
    with Network(experiment, files) as network:
        for single in experiment.singles:
            network.run(single, LARGE, 0)
        for seed in range(1, rounds + 1):
            todo = list(product(experiment.schemes, SIZES))
            random.Random(seed).shuffle(todo)
            for scheme, size in todo:
                if stop.is_set():
                    return records
                if record := network.run(scheme, size, seed):
                    records.append(record)
            print(f"{experiment.name}: round {seed} of {rounds}", file=sys.stderr, flush=True)
    return records


def run_all(experiments: Sequence[Experiment], rounds: int) -> list[Record]:
    """Run several experiments, `AT_ONCE` of them in parallel."""
    stop = Event()
    with in_memory() as files, ThreadPoolExecutor(AT_ONCE) as pool:
        for size in SIZES:
            (files / f"{size}.bin").write_bytes(random.Random(size).randbytes(size * 1_000_000 // SCALE))
        waiting = [pool.submit(run_really, experiment, files, rounds, stop) for experiment in experiments]
        try:
            return [record for done in as_completed(waiting) for record in done.result()]
        finally:
            stop.set()
            pool.shutdown(cancel_futures=True)


def run_all_virtually(experiments: Sequence[Experiment]) -> list[Record]:
    """Fetch the largest file in virtual time with all schemes, each under `VIRTUAL_ROUNDS` seeds of the weather."""
    return [
        run_virtually(experiment, scheme, LARGE, seed)
        for experiment in experiments
        for scheme in experiment.schemes
        for seed in range(1, VIRTUAL_ROUNDS + 1)
    ]


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "experiments", nargs="*", metavar="EXPERIMENT", help=f"default: all of {', '.join(EXPERIMENTS)}"
    )
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="runs of each scheme with each size (%(default)s)")
    parser.add_argument("--page", action="store_true", help="write docs/explanation/paper.md and its pictures")
    options = parser.parse_args()
    if strange := [name for name in options.experiments if name not in EXPERIMENTS]:
        parser.error(f"{', '.join(strange)}: there are {', '.join(EXPERIMENTS)}")
    if options.page and options.experiments:
        parser.error("--page needs all experiments: name none")
    return options


def main() -> None:
    options = _options()
    experiments = [EXPERIMENTS[name] for name in options.experiments or EXPERIMENTS]
    try:
        results = Results(run_all(experiments, options.rounds), run_all_virtually(experiments))
    except Failure as failure:
        sys.exit(str(failure))
    for figure, table in tables(results).items():
        print(f"\nFigure {figure}\n{table}")
    if options.page:
        update(results, options.rounds)


if __name__ == "__main__":
    main()
