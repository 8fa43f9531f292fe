"""Plans made with old rates, judged with later ones: `python -m tests.benchmarks.old_rates`.

Plans one file between two regions of the matrix of three clouds, whose rates are stated to be five days old. Later
rates are generated: rates between these regions, measured twice, five days apart, differed by a median of 24.8 %, and
34 % of them by less than 15 %. The worlds differ in what else they assume. A plan keeps its division of bytes among
paths; direct transfers and the fastest plan for the later rates are compared with it.

The constants of `coalloc.planner.uncertainty` and `coalloc.planner.static.cautious` were chosen on other seeds (10, 11,
and 20 to 22) of the worlds `laplace`, `lognormal`, `mean` and `tails`.
"""

import argparse
import csv
import gzip
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from coalloc.planner import Demand, File, Host, Isp, Link, LinkKey, Network, TransferPlan, least_makespan, plan
from coalloc.planner.limits import PlanLimits

__all__ = ["MATRIX", "WORLDS", "Outcome", "later", "measured", "outcome"]

MATRIX = Path(__file__).parents[3] / "shared" / "data" / "bandwidth" / "skyplane_2022-01-24.csv.gz"
SIZE = 10**11
AGE = 5 * 86400.0
LOSS = 1.02

Floats = NDArray[np.float64]
Rates = Mapping[tuple[str, str], float]
World = Callable[[np.random.Generator, Floats], Floats]
"""Draws the logarithms of later rates from those of the earlier ones."""


def _lognormal(chance: np.random.Generator, logs: Floats) -> Floats:
    return logs + chance.normal(0, 0.36, len(logs))


def _laplace(chance: np.random.Generator, logs: Floats) -> Floats:
    return logs + chance.laplace(0, 0.37, len(logs))


def _tails(chance: np.random.Generator, logs: Floats) -> Floats:
    return logs + 0.33 * chance.standard_t(3, len(logs))


def _mean(chance: np.random.Generator, logs: Floats) -> Floats:
    """Rates return towards their mean, so that both days have the same distribution."""
    variance = logs.var()
    keep = 1 - 0.36**2 / 2 / variance
    return logs.mean() + keep * (logs - logs.mean()) + chance.normal(0, (variance * (1 - keep**2)) ** 0.5, len(logs))


def _mixed(chance: np.random.Generator, logs: Floats) -> Floats:
    """Most rates change little, others much; not used when constants were chosen."""
    return logs + chance.normal(0, np.where(chance.random(len(logs)) < 0.5, 0.2, 0.6))


WORLDS: Mapping[str, World] = {
    "laplace": _laplace,
    "lognormal": _lognormal,
    "mean": _mean,
    "mixed": _mixed,
    "tails": _tails,
}


class Outcome(NamedTuple):
    """One plan, judged with later rates; all in seconds.

    :param relayed: whether it uses relays
    """

    relayed: bool
    plan: float
    direct: float
    clairvoyant: float

    @property
    def loses(self) -> bool:
        """Return whether the plan takes more than 2 % longer than direct transfers."""
        return self.plan > LOSS * self.direct


def measured() -> Rates:
    """Return the measured rates in bytes per second."""
    with gzip.open(MATRIX, "rt") as lines:
        return {
            (row["src_region"], row["dst_region"]): float(row["throughput_received"]) / 8
            for row in csv.DictReader(lines)
            if row["src_region"] != row["dst_region"]
        }


def later(rates: Rates, world: str, seed: int) -> Rates:
    """Return generated rates of five days later."""
    logs = np.log(np.array(list(rates.values())))
    found = np.exp(WORLDS[world](np.random.default_rng((seed, len(world))), logs)).tolist()
    return dict(zip(rates, found, strict=True))


def network(rates: Rates, age: float | None = None) -> Network:
    """Return a network in which the access links of regions have their best rate."""
    up, down = dict.fromkeys((a for a, _ in rates), 1), dict.fromkeys((b for _, b in rates), 1)
    for (source, sink), rate in rates.items():
        up[source], down[sink] = max(up[source], int(rate)), max(down[sink], int(rate))
    hosts = tuple(Host(name, (Isp("", up.get(name), down.get(name)),)) for name in up | down)
    links = tuple(Link(LinkKey(*pair), max(1, int(rate)), age=age) for pair, rate in rates.items())
    return Network.of(hosts, links)


def outcome(made: TransferPlan, there: Network, demand: Demand) -> Outcome:
    """Judge a plan on a network of later rates."""
    best = least_makespan(there, demand)
    assert best.direct is not None, "every pair has a link"
    limits = PlanLimits(there, None)
    seconds = max(float(load / limits.capacity(limit)) for limit, load in limits.loads(made.flows).items() if load)
    relayed = any(len(path.hosts) > 2 for path in made.paths)
    return Outcome(relayed, seconds, float(best.direct), float(best.makespan))


def kept(outcomes: Sequence[Outcome]) -> float:
    """Return the share of the time that the clairvoyant plans save which these plans save."""
    saved = sum(1 - each.plan / each.direct for each in outcomes)
    return saved / sum(1 - each.clairvoyant / each.direct for each in outcomes)


def chosen(outcomes: Sequence[Outcome]) -> float:
    """Return the same for clairvoyant choices between these plans and direct transfers."""
    saved = sum(1 - each.plan / each.direct for each in outcomes)
    return saved / sum(max(0.0, 1 - each.plan / each.direct) for each in outcomes)


def line(name: str, outcomes: Sequence[Outcome]) -> str:
    """Return the line of a table."""
    relayed = sum(each.relayed for each in outcomes) / len(outcomes)
    loses = sum(each.loses for each in outcomes) / len(outcomes)
    gains = np.quantile([each.direct / each.plan for each in outcomes], (0.05, 0.5))
    numbers = f"{relayed:.0%} | {loses:.1%} | {gains[0]:.2f} | {gains[1]:.2f} | {kept(outcomes):.0%}"
    return f"| {name} | {numbers} | {chosen(outcomes):.0%} |"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=200, help="number of random pairs of regions")
    parser.add_argument("--seeds", type=int, default=5, help="later matrices of each world")
    options = parser.parse_args()
    rates = measured()
    old = network(rates, AGE)
    pairs = np.random.default_rng(2026).permutation(list(rates))[: options.pairs].tolist()
    demands = [Demand((File("x", SIZE, (a,), (b,)),)) for a, b in pairs]
    plans = {
        "plan": [plan(old, demand) for demand in demands],
        "least makespan": [least_makespan(old, demand) for demand in demands],
    }
    print("| later rates | relayed | lose > 2 % | 5 % quantile of the gain | median | kept | of choices |")
    print("|---|---|---|---|---|---|---|")
    for world in WORLDS:
        found: dict[str, list[Outcome]] = {name: [] for name in plans}
        for seed in range(1000, 1000 + options.seeds):
            there = network(later(rates, world, seed))
            for name, made in plans.items():
                found[name] += [outcome(each, there, demand) for each, demand in zip(made, demands, strict=True)]
        for name, outcomes in found.items():
            print(line(f"{world}, {name}", outcomes), flush=True)


if __name__ == "__main__":
    main()
