"""All runs of a scenario: the rivals (programs to compare), their order, the rounds, and the files of each run.

`tests.benchmarks.race` carries out one run, `tests.benchmarks.field` provides the network, and
`tests.benchmarks.results` evaluates the runs.
"""

import os
import random
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

from tests.benchmarks.alone import delivered
from tests.benchmarks.field import Field
from tests.benchmarks.plan import Plan
from tests.benchmarks.race import Command, Run, compete, interrupted
from tests.benchmarks.results import LIMIT, Result
from tests.benchmarks.rivals import Errand, Rival
from tests.benchmarks.scenarios import Scenario
from tests.testbed.wan import Invalid

__all__ = ["Bench", "in_memory"]

MEMORY = Path("/dev/shm")
PREFIX = "coget-wan-"
NAME = "data.bin"
BLOCK = 1 << 20
TRIES = 4
LEAST_LIMIT = 20.0
"""Lower bound of the time limit of a run, in seconds: small files would give too short a limit."""


@contextmanager
def in_memory() -> Iterator[Path]:
    """Provide a directory in memory. First remove the directories of killed runs."""
    for left in MEMORY.glob(f"{PREFIX}*"):
        if not Path("/proc", left.name.removeprefix(PREFIX)).exists():
            shutil.rmtree(left, ignore_errors=True)
    folder = MEMORY / f"{PREFIX}{os.getpid()}"
    folder.mkdir()
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


class Bench:
    """One scenario with one congestion control and its rivals.

    :param folder: directory for the served file, which `__init__` writes, and for the home directories of the runs
    """

    def __init__(self, scenario: Scenario, congestion: str, rivals: Sequence[Rival], folder: Path) -> None:
        self._scenario = scenario
        self._congestion = congestion
        self._rivals = rivals
        self._served = folder / "served"
        self._homes = folder
        self._repeated = 0
        self._served.mkdir(exist_ok=True)
        file = self._served / NAME
        if not file.exists() or file.stat().st_size != scenario.size:
            _write(file, scenario.size)

    def alone(self) -> dict[str, float]:
        """Return each source's measured rate when it sends alone, divided by its rate in the schedule."""
        return delivered(self._scenario, self._congestion, self._served, NAME)

    def run(self, rounds: int) -> Result:
        """Run all rounds, each with another order of rivals and of URLs."""
        plan = Plan(self._scenario, self._congestion)
        runs: dict[str, list[Run]] = {rival.name: [] for rival in self._rivals}
        for seed in range(1, rounds + 1):
            for name, run in self.round(seed):
                runs[name].append(run)
        timeline = [(at, event.says) for at, event in plan.timeline]
        size = self._scenario.size
        return Result(self._scenario.name, self._congestion, plan.ideal, size, {}, timeline, runs, self._repeated)

    def round(self, seed: int) -> Iterator[tuple[str, Run]]:
        """Run each rival once; yield its name and its run."""
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
        limit = max(LIMIT * plan.ideal, LEAST_LIMIT)
        with Field(plan, schemes, self._served) as field, tempfile.TemporaryDirectory(dir=self._homes) as home:
            command = self._command(field, rival, hosts, Path(home))
            if self._scenario.rerun:
                interrupted(command, field, self._scenario.size, limit)
            run = compete(command, field, field.events(), limit)
            try:
                field.check()
            except Invalid as error:
                return replace(run, outcome="invalid", said=str(error))
            return run

    def _command(self, field: Field, rival: Rival, hosts: Sequence[str], home: Path) -> Command:
        urls = {host: field.url(host, NAME) for host in hosts}
        errand = Errand(list(urls.values()), urls[field.plan.best], self._scenario.size, home / "target.bin")
        return Command(
            field.command(rival.command(errand)),
            {**_environment(home, field.authority), **rival.environment},
            errand.target,
            self._served / NAME,
            {url: host for host, url in urls.items()},
        )

    def _valid(self, attempt: Callable[[], Run]) -> Run:
        """Repeat an invalid attempt up to `TRIES` times in all; return the first valid run, or else the last one."""
        run = attempt()
        for _ in range(TRIES - 1):
            if run.outcome != "invalid":
                break
            self._repeated += 1
            run = attempt()
        return run


def _environment(home: Path, authority: Path | None) -> dict[str, str]:
    """Return an environment with an empty history and no files of the user."""
    kept = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
    trust = {"SSL_CERT_FILE": str(authority)} if authority else {}
    return {**kept, **trust, "HOME": str(home), "COGET_HISTORY": str(home / "history.sqlite")}


def _write(path: Path, size: int) -> None:
    """Write random bytes; the same size gives the same bytes."""
    draw = random.Random(size).randbytes
    with path.open("wb") as file:
        for begin in range(0, size, BLOCK):
            file.write(draw(min(BLOCK, size - begin)))
