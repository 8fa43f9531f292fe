"""Confluence's figures 6 to 9 as tables, beside the values in the paper."""

from collections.abc import Iterator, Sequence
from statistics import median

from coalloc.planner import least_makespan
from tests.benchmarks.collecting.confluence import (
    KS,
    MIDDLE,
    NONE,
    PERIODS,
    POOLS,
    SIZES,
    Case,
    Run,
    doubled,
    few,
    sinks,
)
from tests.benchmarks.collecting.results import middle, percent, table
from tests.benchmarks.collecting.sinks import Topology, planetlab

__all__ = ["Runs", "perfect", "tables"]

WORTH, ANY = 0.2, 0.01
"""The gain that the paper counts, and the smallest share that counts as any gain."""
SPREADS = (0.7, 1.0, 1.35, 1.6, 2.0)
"""Standard deviations of the logarithm of paths, for the table that shows what depends on them."""
PAPER = {25: "80 % of the sinks >= 20 %, best 80 %", 50: "70 % of the sinks gain, best 40 to 75 %", 100: "little"}


class Runs:
    """All runs, by case."""

    def __init__(self, runs: Sequence[Run]) -> None:
        self._runs = {run.case: run for run in runs}
        self.seeds = sorted({run.case.seed for run in runs})

    def __contains__(self, case: Case) -> bool:
        return case in self._runs

    def seconds(self, case: Case) -> float:
        """Return the makespan."""
        return self._runs[case].seconds

    def gains(self, cases: Sequence[Case]) -> list[float]:
        """Return, for each sink, the share of the direct transfers' time that is saved."""
        return [1 - self.seconds(case) / self.seconds(case.direct) for case in cases if case in self]

    def cases(self, matrix: str, n: int) -> list[Case]:
        """Return the cases of all networks of a kind that have been run."""
        return [case for seed in self.seeds for case in sinks(matrix, n, seed) if case in self]

    def over(self, cases: Sequence[Case], bases: Sequence[Case]) -> list[float]:
        """Return the makespan of each case divided by that of its base, minus one."""
        pairs = zip(cases, bases, strict=True)
        return [self.seconds(case) / self.seconds(base) - 1 for case, base in pairs if case in self and base in self]


def tables(runs: Runs) -> dict[str, str]:
    """Return the tables by figure."""
    return {
        "figure 6a": table(["connections at once", "makespan over that of all at once"], list(_pools(runs))),
        "figure 6b": _doubled(runs),
        "figure 7a": table(
            ["k", "makespan over that of k = 10", "the same where the sink is no peer of all"], list(_peers(runs))
        ),
        "figure 7b": table(["plans", "makespan over that of p = 15 s", "gain over direct"], list(_periods(runs))),
        "figure 9": table(
            [
                "n",
                "sinks",
                "gain",
                ">= 20 %",
                ">= 1 %",
                "a perfect plan, nothing changing: gain",
                ">= 20 %",
                ">= 1 %",
                "paper",
            ],
            list(_sizes(runs)),
        ),
        "all sinks": table(["n", "sinks", "gain", ">= 20 %", ">= 1 %"], list(_everywhere(runs))),
        "spreads": _spreads(runs),
    }


def _pools(runs: Runs) -> Iterator[list[str]]:
    middle_ones = sinks("planetlab", MIDDLE, 1)
    for pool in POOLS:
        found = runs.over(
            [case.direct._replace(pool=pool) for case in middle_ones], [case.direct for case in middle_ones]
        )
        yield [str(pool), middle(found)]


def _doubled(runs: Runs) -> str:
    bases = [case for case in runs.cases("planetlab", MIDDLE) if doubled(case).direct in runs]
    if not bases:
        return "–"
    found = [1 + part for part in runs.over([doubled(case).direct for case in bases], [case.direct for case in bases])]
    return table(
        ["sinks", "direct from 99 over direct from 49", "paper"],
        [[str(len(found)), f"{median(found):.2f} ({min(found):.2f} to {max(found):.2f})", "1 to 2"]],
    )


def _peers(runs: Runs) -> Iterator[list[str]]:
    cases = few()
    for k in KS:
        plain, strict = (
            runs.over([case._replace(peers=k, strict=strict) for case in cases], cases) for strict in (False, True)
        )
        yield [str(k), middle(plain), middle(strict)]


def _periods(runs: Runs) -> Iterator[list[str]]:
    cases = few()
    for value in PERIODS:
        varied = [case._replace(period=value) for case in cases]
        name = "one only" if value == NONE else f"every {value:g} s"
        yield [name, middle(runs.over(varied, cases)), middle(runs.gains(varied))]


def _sizes(runs: Runs) -> Iterator[list[str]]:
    kinds = [*(("planetlab", n, str(n)) for n in SIZES), ("cloud", MIDDLE, f"{MIDDLE}, cloud")]
    for matrix, n, name in kinds:
        if not (cases := [case for case in runs.cases(matrix, n) if case.direct in runs]):
            continue
        gains = runs.gains(cases)
        best = [perfect(case) for case in cases]
        paper = PAPER[n] if matrix == "planetlab" else ""
        parts = (percent(part(gains, WORTH)), percent(part(gains, ANY)))
        perfectly = (middle(best), percent(part(best, WORTH)), percent(part(best, ANY)))
        yield [name, str(len(cases)), middle(gains), *parts, *perfectly, paper]


def _everywhere(runs: Runs) -> Iterator[list[str]]:
    """Yield the gains of perfect plans with each host as the sink, for the networks that have runs."""
    for n in SIZES:
        seeds = {case.seed for case in runs.cases("planetlab", n)}
        cases = [Case("planetlab", n, seed, host) for seed in sorted(seeds) for host in planetlab(n, seed).hosts]
        if gains := [perfect(case) for case in cases]:
            yield [str(n), str(len(gains)), middle(gains), percent(part(gains, WORTH)), percent(part(gains, ANY))]


def _spreads(runs: Runs) -> str:
    """Return the table of the gains of perfect plans, by how much paths differ; the first network, every sink."""
    sizes = [n for n in (min(SIZES), MIDDLE) if runs.cases("planetlab", n)]
    rows = []
    for differ in SPREADS:
        found = [f"{differ:g}", percent(planetlab(min(SIZES), 1, differ).helped())]
        for n in sizes:
            topology = planetlab(n, 1, differ)
            gains = [saved(topology, sink) for sink in topology.hosts]
            found += [percent(part(gains, WORTH)), percent(part(gains, ANY)), percent(max(gains))]
        rows.append(found)
    columns = [f"n = {n}: {column}" for n in sizes for column in (">= 20 %", ">= 1 %", "best")]
    return table(["deviation of paths", "better over a third host", *columns], rows)


def part(gains: Sequence[float], least: float) -> float:
    """Return the share of values that are at least this large."""
    return sum(gain >= least for gain in gains) / len(gains)


def perfect(case: Case) -> float:
    """Return the gain of a plan with exact capacities that do not change."""
    return saved(case.topology, case.sink)


def saved(topology: Topology, sink: str) -> float:
    """Return the share of the direct transfers' time that a plan with exact capacities saves."""
    plan = least_makespan(topology.network(), topology.demand(sink))
    return float(1 - plan.makespan / plan.direct) if plan.direct else 0.0
