"""The WAN benchmark: coget compared with other programs, on networks that differ, change and fail.

    python -m tests.benchmarks.wan [SCENARIO...] [--rounds N] [--rivals coget,aria2,...] [--json FILE]
    python -m tests.benchmarks.wan random --seed 7 --seed 8

Prints a table for each scenario: the time divided by the ideal time, the share of unneeded bytes, and processor time.
With a file for the results, a call goes on where the last one ended, as long as the code has not changed.
docs/explanation/benchmarks.md explains the measurements. Needs root, and the programs that `make bench-wan` installs.
"""

import argparse
import subprocess
from dataclasses import replace
from pathlib import Path

from tests.benchmarks import results
from tests.benchmarks.bench import Bench, in_memory
from tests.benchmarks.machine import speed
from tests.benchmarks.results import Result
from tests.benchmarks.rivals import PEERS, RIVALS
from tests.benchmarks.scenarios import RANDOM, SCENARIOS, Scenario, named
from tests.benchmarks.table import show

HOUSE = Path(__file__).parents[2]


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "scenarios",
        nargs="*",
        metavar="SCENARIO",
        help=f"default: all of {', '.join(SCENARIOS)}; {RANDOM} for the networks of --seed, {RANDOM}-N for one of them",
    )
    parser.add_argument("--seed", type=int, action="append", help=f"seed of a {RANDOM} network; may be repeated")
    parser.add_argument(
        "--rivals", type=lambda text: text.split(","), help=f"programs to compare, of {', '.join(RIVALS)}"
    )
    parser.add_argument("--rounds", type=int, help="runs of each rival; default: the scenario's own")
    parser.add_argument("--size", type=int, metavar="MIB", help="size of the file; default: the scenario's own")
    parser.add_argument(
        "--json", type=Path, metavar="FILE", help="file for the results; those of other scenarios in it are kept"
    )
    options = parser.parse_args()
    if options.seed or RANDOM in options.scenarios:
        drawn = [f"{RANDOM}-{seed}" for seed in options.seed or [1]]
        options.scenarios = [*(name for name in options.scenarios if name != RANDOM), *drawn]
    for name in options.scenarios or SCENARIOS:
        try:
            named(name)
        except KeyError:
            parser.error(f"{name}: there are {', '.join(SCENARIOS)}, {RANDOM}-N")
    if strange := [name for name in options.rivals or [] if name not in RIVALS]:
        parser.error(f"{', '.join(strange)}: there are {', '.join(RIVALS)}")
    return options


def main() -> None:
    options = _options()
    version = _version()
    alone: dict[tuple[str, str], dict[str, float]] = {}
    done = results.read(options.json) if options.json and options.json.exists() else []
    for name in options.scenarios or SCENARIOS:
        scenario = named(name) if options.size is None else replace(named(name), size=options.size << 20)
        rounds, rivals = options.rounds or scenario.rounds, options.rivals or [*PEERS, *scenario.extra]
        for congestion in scenario.congestion:
            if any(_is_made(result, version, scenario, congestion, rivals, rounds) for result in done):
                continue
            with in_memory() as folder:
                bench = Bench(scenario, congestion, [RIVALS[rival] for rival in rivals], folder)
                links = (str(scenario.topology), congestion)
                if links not in alone:
                    alone[links] = bench.alone()
                machine = speed()
                result = replace(bench.run(rounds), alone=alone[links], version=version, machine=machine)
            print(show(result), flush=True)
            if options.json:
                results.write(options.json, [result])


def _version() -> str:
    """Return the commit of the code, or nothing if files were changed since."""
    changed = subprocess.run(["git", "status", "--porcelain"], cwd=HOUSE, capture_output=True, text=True, check=False)
    known = ["git", "rev-parse", "--short", "HEAD"]
    commit = subprocess.run(known, cwd=HOUSE, capture_output=True, text=True, check=False)
    return "" if changed.returncode or changed.stdout or commit.returncode else commit.stdout.strip()


def _is_made(result: Result, version: str, scenario: Scenario, congestion: str, rivals: list[str], rounds: int) -> bool:
    """Return whether a stored result has all that this call would measure, with the same code."""
    same = (result.scenario, result.congestion, result.size) == (scenario.name, congestion, scenario.size)
    whole = all(len(result.runs.get(rival, ())) >= rounds for rival in rivals)
    return bool(version) and result.version == version and same and whole


if __name__ == "__main__":
    main()
