"""The WAN benchmark: coget beside its peers, on networks that differ, change and fail.

    python -m tests.benchmarks.wan [SCENARIO...] [--rounds N] [--rivals coget,aria2,...] [--json FILE]

Prints a table for each scenario: the time over the ideal, what went over the wire without need, and processor time.
docs/explanation/benchmarks.md says how all this is measured. Needs root, and programs that `make bench-wan` installs.
"""

import argparse
import os
import random
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from tests.benchmarks import results
from tests.benchmarks.alone import delivered
from tests.benchmarks.field import Field
from tests.benchmarks.plan import Plan
from tests.benchmarks.race import Command, Run, compete, interrupted
from tests.benchmarks.results import LIMIT, Result
from tests.benchmarks.rivals import PEERS, RIVALS, Errand, Rival
from tests.benchmarks.scenarios import SCENARIOS, Scenario
from tests.benchmarks.table import show
from tests.testbed.wan import Invalid

MEMORY = Path("/dev/shm")
TRIES = 4
NAME = "data.bin"


class Bench:
    """One scenario with one congestion control, and who takes part.

    :param folder: for the file, and for what comes of it
    """

    def __init__(self, scenario: Scenario, congestion: str, rivals: Sequence[Rival], folder: Path) -> None:
        self._scenario = scenario
        self._congestion = congestion
        self._rivals = rivals
        self._folder = folder
        self._repeated = 0

    def run(self, rounds: int) -> Result:
        """The links alone, then all rounds: each in an order of its own, of rivals and of URLs."""
        plan = Plan(self._scenario, self._congestion)
        alone = delivered(self._scenario, self._congestion, self._folder, NAME)
        runs: dict[str, list[Run]] = {rival.name: [] for rival in self._rivals}
        for seed in range(1, rounds + 1):
            for name, run in self._round(seed):
                runs[name].append(run)
        timeline = [(at, event.says) for at, event in plan.timeline]
        return Result(
            self._scenario.name,
            self._congestion,
            plan.ideal,
            self._scenario.size,
            alone,
            timeline,
            runs,
            self._repeated,
        )

    def _round(self, seed: int) -> Iterator[tuple[str, Run]]:
        plan, shuffle = Plan(self._scenario, self._congestion, seed), random.Random(seed).shuffle
        rivals, hosts = list(self._rivals), list(plan.sources)
        shuffle(rivals)
        shuffle(hosts)
        for rival in rivals:
            run = self._valid(partial(self._once, plan, rival, hosts))
            where = f"{self._scenario.name} {self._congestion} {seed}"
            print(f"{where} {rival.name}: {run.outcome}, {run.seconds:.2f} s {run.said}", file=sys.stderr)
            yield rival.name, run

    def _once(self, plan: Plan, rival: Rival, hosts: Sequence[str]) -> Run:
        schemes = plan.schemes if rival.servers == "own" else dict.fromkeys(plan.sources, rival.servers)
        with Field(plan, schemes, self._folder) as field, tempfile.TemporaryDirectory(dir=MEMORY) as name:
            home = Path(name)
            urls = {host: field.url(host, NAME) for host in hosts}
            errand = Errand(list(urls.values()), urls[plan.best], self._scenario.size, home / "target.bin")
            command = Command(
                field.command(rival.command(errand)),
                {**_environment(home, field.authority), **rival.environment},
                errand.target,
                self._folder / NAME,
                {url: host for host, url in urls.items()},
            )
            limit = LIMIT * plan.ideal
            if self._scenario.rerun:
                interrupted(command, field, self._scenario.size, limit)
            run = compete(command, field, field.events(), limit)
            try:
                field.check()
            except Invalid as error:
                return replace(run, outcome="invalid", said=str(error))
            return run

    def _valid(self, attempt: Callable[[], Run]) -> Run:
        """What comes of an attempt that the testbed could keep up with, if one of several is such."""
        run = attempt()
        for _ in range(TRIES - 1):
            if run.outcome != "invalid":
                break
            self._repeated += 1
            run = attempt()
        return run


def _environment(home: Path, authority: Path | None) -> dict[str, str]:
    """Nothing of the user's; an empty history."""
    kept = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
    trust = {"SSL_CERT_FILE": str(authority)} if authority else {}
    return {**kept, **trust, "HOME": str(home), "COGET_HISTORY": str(home / "history.sqlite")}


def _write_file(path: Path, size: int) -> None:
    """Random bytes, the same each time."""
    draw = random.Random(size).randbytes
    with path.open("wb") as file:
        for begin in range(0, size, 1 << 20):
            file.write(draw(min(1 << 20, size - begin)))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scenarios", nargs="*", metavar="SCENARIO", help=f"default: all of {', '.join(SCENARIOS)}")
    parser.add_argument("--rivals", type=lambda text: text.split(","), help=f"of {', '.join(RIVALS)}")
    parser.add_argument("--rounds", type=int, help="runs of each rival; default: the scenario's own")
    parser.add_argument("--size", type=int, metavar="MIB", help="another size of the file; results are then not kept")
    parser.add_argument(
        "--json", type=Path, metavar="FILE", help="keep the results here, beside those of other scenarios"
    )
    options = parser.parse_args()
    for chosen, known in ((options.scenarios, SCENARIOS), (options.rivals or [], RIVALS)):
        if strange := [name for name in chosen if name not in known]:
            parser.error(f"{', '.join(strange)}: there are {', '.join(known)}")
    return options


def main() -> None:
    options = _options()
    stored: list[Result] = []
    for name in options.scenarios or SCENARIOS:
        scenario = SCENARIOS[name] if options.size is None else replace(SCENARIOS[name], size=options.size << 20)
        rivals = [RIVALS[rival] for rival in options.rivals or [*PEERS, *scenario.extra]]
        with tempfile.TemporaryDirectory(dir=MEMORY, prefix="coget-wan-") as folder:
            _write_file(Path(folder) / NAME, scenario.size)
            for congestion in scenario.congestion:
                result = Bench(scenario, congestion, rivals, Path(folder)).run(options.rounds or scenario.rounds)
                print(show(result), flush=True)
                stored.append(result)
        if options.json:
            results.write(options.json, stored)


if __name__ == "__main__":
    main()
