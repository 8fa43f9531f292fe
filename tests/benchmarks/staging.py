"""The benchmark of `coget collect`: 8 files of 50 MB from four sites to a fifth, with and without relays.

    python -m tests.benchmarks.staging [SCENARIO...] [--rounds N] [--sink here|server] [--known file|probe] [-v]

Prints for each scenario the makespans of both methods, and those that the planner forecast. A makespan is taken from
coget's report: from the first listing of the destination until the last file has its name.
docs/explanation/adaptive-collecting.md explains the references. Needs root, and the programs that tests/testbed needs.
"""

import argparse
import statistics
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from coalloc.planner import least_makespan
from coalloc.planner.results import TransferPlan
from tests.benchmarks.bench import in_memory
from tests.benchmarks.clairvoyant import Change, clairvoyant, kept
from tests.benchmarks.sites import SINK, Run, Site, Situation, collected

METHODS = ("all-at-once", "adaptive")
ROUNDS = 3
TRIES = 3
SCENARIOS = {
    "relay": Situation("the link from a to t is congested"),
    "halves": Situation("the same; the link from b to t, which the plan uses, drops to half", halves=("b", SINK)),
    "direct": Situation("all links to t have the same rate, so relays cannot help", inward="25mbit"),
}


@dataclass(frozen=True)
class Expected:
    """Forecast makespans in seconds.

    :param plan: the plan with relays, without a change
    :param change: the change of a link, if there is one
    :param clairvoyant: makespan of a plan that knows the change in advance
    :param kept: makespan of `plan` if it is kept in spite of the change
    """

    plan: TransferPlan
    change: Change | None
    clairvoyant: float
    kept: float

    @property
    def seconds(self) -> float:
        """Return the makespan of the plan with relays."""
        return float(self.plan.makespan)

    @property
    def straight(self) -> float:
        """Return the makespan of the plan without relays."""
        assert self.plan.direct is not None
        return float(self.plan.direct)


def expected(situation: Situation) -> Expected:
    """Compute the forecast makespans from the rates of the topology."""
    plan = least_makespan(situation.network, situation.demand)
    seconds, change = float(plan.makespan), situation.change(float(plan.makespan) / 2)
    if change is None:
        return Expected(plan, None, seconds, seconds)
    rates = {(key.source, key.sink): float(link.capacity) for key, link in situation.network.links.items()}
    flows = {(key.source, key.sink): float(flow) for key, flow in plan.flows.items()}
    knowing = clairvoyant(rates, situation.supply, SINK, change)
    return Expected(plan, change, knowing, kept(flows, seconds, change))


def measured(situation: Situation, says: Expected, site: Site, rounds: int, verbose: bool) -> dict[str, list[Run]]:
    """Run all rounds, in an order of methods that changes from round to round; return the valid runs by method."""
    runs: dict[str, list[Run]] = {method: [] for method in METHODS}
    for number in range(rounds):
        for method in METHODS[:: 1 if number % 2 else -1]:
            for _ in range(TRIES):
                run = collected(situation, method, says.change, site)
                print(f"{method}: {run.seconds:.2f} s {run.invalid} {run.rationale}", file=sys.stderr)
                if verbose:
                    print(*run.pairs, sep="\n", file=sys.stderr)
                if not run.invalid:
                    runs[method].append(run)
                    break
    return runs


def shown(situation: Situation, says: Expected, runs: dict[str, list[Run]]) -> str:
    """Return the results as lines of text."""
    took = {method: [run.seconds for run in each] for method, each in runs.items()}
    if not all(took.values()):
        return "no valid run: the machine is too busy"
    straight, adaptive = (statistics.median(took[method]) for method in METHODS)
    lines = [
        f"planned: {says.seconds:.2f} s, direct {says.straight:.2f} s: gain {says.straight / says.seconds:.2f}",
        *(f"{method}: {_spread(seconds)} s" for method, seconds in took.items()),
        f"adaptive: {max(run.relayed for run in runs['adaptive']):.0%} of the bytes went over relays at most",
    ]
    if says.change is None:
        gain, wanted = straight / adaptive, says.straight / says.seconds
        lines.append(f"gain: {gain:.2f}, {gain / wanted:.0%} of the planned one")
    else:
        lines += [
            f"clairvoyant plan: {says.clairvoyant:.2f} s; first plan, kept unchanged: {says.kept:.2f} s",
            f"share of the clairvoyant plan's gain: over direct transfers "
            f"{(straight - adaptive) / (straight - says.clairvoyant):.0%}, over the first plan "
            f"{(says.kept - adaptive) / (says.kept - says.clairvoyant):.0%}",
        ]
    return "\n".join(f"  {line}" for line in lines)


def _spread(seconds: Sequence[float]) -> str:
    return f"{statistics.median(seconds):.2f} ({min(seconds):.2f} to {max(seconds):.2f}, {len(seconds)} runs)"


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scenarios", nargs="*", metavar="SCENARIO", help=f"default: all of {', '.join(SCENARIOS)}")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="runs with each method")
    parser.add_argument("--sink", choices=("here", "server"), default="here", help="destination at t")
    parser.add_argument("--known", choices=("file", "probe"), default="file", help="source of the network file")
    parser.add_argument("-v", "--verbose", action="store_true", help="show the bytes by pair of hosts")
    options = parser.parse_args()
    if strange := [name for name in options.scenarios if name not in SCENARIOS]:
        parser.error(f"{', '.join(strange)}: there are {', '.join(SCENARIOS)}")
    if options.known == "probe" and options.sink == "here":
        parser.error("--known probe needs a server at t: use --sink server")
    return options


def main() -> None:
    """Run the scenarios and print the tables."""
    options = _options()
    for name in options.scenarios or SCENARIOS:
        situation = SCENARIOS[name]
        says = expected(situation)
        with in_memory() as folder:
            site = Site(folder, sink=options.sink, known=options.known)
            runs = measured(situation, says, site, options.rounds, options.verbose)
        print(f"{name}: {situation.says}\n{shown(situation, says, runs)}", flush=True)


if __name__ == "__main__":
    main()
