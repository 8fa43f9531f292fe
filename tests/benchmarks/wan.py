"""The WAN benchmark: coget compared with other programs, on networks that differ, change and fail.

    python -m tests.benchmarks.wan [SCENARIO...] [--rounds N] [--rivals coget,aria2,...] [--json FILE]

Prints a table for each scenario: the time divided by the ideal time, the share of unneeded bytes, and processor time.
docs/explanation/benchmarks.md explains the measurements. Needs root, and the programs that `make bench-wan` installs.
"""

import argparse
from dataclasses import replace
from pathlib import Path

from tests.benchmarks import results
from tests.benchmarks.bench import Bench, in_memory
from tests.benchmarks.results import Result
from tests.benchmarks.rivals import PEERS, RIVALS
from tests.benchmarks.scenarios import SCENARIOS
from tests.benchmarks.table import show


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scenarios", nargs="*", metavar="SCENARIO", help=f"default: all of {', '.join(SCENARIOS)}")
    parser.add_argument(
        "--rivals", type=lambda text: text.split(","), help=f"programs to compare, of {', '.join(RIVALS)}"
    )
    parser.add_argument("--rounds", type=int, help="runs of each rival; default: the scenario's own")
    parser.add_argument("--size", type=int, metavar="MIB", help="size of the file; default: the scenario's own")
    parser.add_argument(
        "--json", type=Path, metavar="FILE", help="file for the results; those of other scenarios in it are kept"
    )
    options = parser.parse_args()
    for chosen, known in ((options.scenarios, SCENARIOS), (options.rivals or [], RIVALS)):
        if strange := [name for name in chosen if name not in known]:
            parser.error(f"{', '.join(strange)}: there are {', '.join(known)}")
    return options


def main() -> None:
    options = _options()
    stored: list[Result] = []
    alone: dict[tuple[str, str], dict[str, float]] = {}
    for name in options.scenarios or SCENARIOS:
        scenario = SCENARIOS[name] if options.size is None else replace(SCENARIOS[name], size=options.size << 20)
        rivals = [RIVALS[rival] for rival in options.rivals or [*PEERS, *scenario.extra]]
        with in_memory() as folder:
            for congestion in scenario.congestion:
                bench, links = Bench(scenario, congestion, rivals, folder), (scenario.topology, congestion)
                if links not in alone:
                    alone[links] = bench.alone()
                result = replace(bench.run(options.rounds or scenario.rounds), alone=alone[links])
                print(show(result), flush=True)
                stored.append(result)
        if options.json:
            results.write(options.json, stored)


if __name__ == "__main__":
    main()
