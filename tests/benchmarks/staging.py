"""The collection benchmark: 8 files of 50 MB at four sites, to a fifth, over relays and straight, beside the plan.

    python -m tests.benchmarks.staging [SCENARIO...] [--rounds N] [--sink here|server] [--known file|probe] [-v]

Prints a table for each scenario: what `coget collect` took by either method, and what the planner had said. Makespans
are those of its report: from the first look at the destination to the last file's name. What they are compared with is
told in docs/explanation/adaptive-collecting.md. Needs root, and what tests/testbed needs.
"""

import argparse
import statistics
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from coalloc.planner.least_makespan import least_makespan
from coalloc.planner.plan import TransferPlan
from tests.benchmarks.bench import in_memory
from tests.benchmarks.clairvoyant import Change, clairvoyant, kept
from tests.benchmarks.sites import SINK, Run, Site, Situation, collected

METHODS = ("all-at-once", "adaptive")
ROUNDS = 3
TRIES = 3
SCENARIOS = {
    "relay": Situation("the way from a to t is congested"),
    "halves": Situation("the same; b to t, which is on the planned way, drops to half midway", halves=("b", SINK)),
    "direct": Situation("all ways to t are alike, so that relays cannot help", inward="25mbit"),
}


@dataclass(frozen=True)
class Expected:
    """Seconds that the planner predicts: with relays, without, and for plans that foresee or ignore a change."""

    plan: TransferPlan
    change: Change | None
    clairvoyant: float
    kept: float

    @property
    def seconds(self) -> float:
        """Return the seconds of the plan with relays."""
        return float(self.plan.makespan)

    @property
    def straight(self) -> float:
        """Return the seconds of the plan without relays."""
        assert self.plan.direct is not None
        return float(self.plan.direct)


def expected(situation: Situation) -> Expected:
    """Compute the predictions from the rates of the topology."""
    plan = least_makespan(situation.network, situation.demand)
    seconds, change = float(plan.makespan), situation.change(float(plan.makespan) / 2)
    if change is None:
        return Expected(plan, None, seconds, seconds)
    rates = {(key.source, key.sink): float(link.capacity) for key, link in situation.network.links.items()}
    flows = {(key.source, key.sink): float(flow) for key, flow in plan.flows.items()}
    knowing = clairvoyant(rates, situation.supply, SINK, change)
    return Expected(plan, change, knowing, kept(flows, seconds, change))


def measured(situation: Situation, says: Expected, site: Site, rounds: int, verbose: bool) -> dict[str, list[Run]]:
    """Make all valid runs, by method; the order of methods changes from round to round."""
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
    """Return the table."""
    took = {method: [run.seconds for run in each] for method, each in runs.items()}
    if not all(took.values()):
        return "no valid run: the machine is too busy"
    straight, adaptive = (statistics.median(took[method]) for method in METHODS)
    lines = [
        f"planned: {says.seconds:.2f} s, straight {says.straight:.2f} s: gain {says.straight / says.seconds:.2f}",
        *(f"{method}: {_spread(seconds)} s" for method, seconds in took.items()),
        f"adaptive: {max(run.relayed for run in runs['adaptive']):.0%} of the bytes went over relays at most",
    ]
    if says.change is None:
        gain, wanted = straight / adaptive, says.straight / says.seconds
        lines.append(f"gain: {gain:.2f}, {gain / wanted:.0%} of the planned one")
    else:
        lines += [
            f"clairvoyant: {says.clairvoyant:.2f} s; the first plan, kept: {says.kept:.2f} s",
            f"recovered of what a clairvoyant plan gains over straight: "
            f"{(straight - adaptive) / (straight - says.clairvoyant):.0%}; over the first plan, kept: "
            f"{(says.kept - adaptive) / (says.kept - says.clairvoyant):.0%}",
        ]
    return "\n".join(f"  {line}" for line in lines)


def _spread(seconds: Sequence[float]) -> str:
    return f"{statistics.median(seconds):.2f} ({min(seconds):.2f} to {max(seconds):.2f}, {len(seconds)} runs)"


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scenarios", nargs="*", metavar="SCENARIO", help=f"default: all of {', '.join(SCENARIOS)}")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="runs by either method")
    parser.add_argument("--sink", choices=("here", "server"), default="here", help="what t has: a directory, a server")
    parser.add_argument("--known", choices=("file", "probe"), default="file", help="from where the network is known")
    parser.add_argument("-v", "--verbose", action="store_true", help="what went from where to where")
    options = parser.parse_args()
    if strange := [name for name in options.scenarios if name not in SCENARIOS]:
        parser.error(f"{', '.join(strange)}: there are {', '.join(SCENARIOS)}")
    if options.known == "probe" and options.sink == "here":
        parser.error("only ways between servers can be probed: --sink server")
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
