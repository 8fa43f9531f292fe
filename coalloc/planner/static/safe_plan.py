"""The safe plan, with which others are compared: it relays only files that have no direct path."""

from collections.abc import Callable, Hashable, Mapping
from dataclasses import replace
from fractions import Fraction
from operator import itemgetter
from typing import TypeVar

from coalloc.errors import UsageError
from coalloc.planner.certificate import PRECISE, bound
from coalloc.planner.demands import with_direct_path
from coalloc.planner.limits import BUDGET, PlanLimits, duration, named
from coalloc.planner.network import Demand, Network
from coalloc.planner.results import Certificate, TransferPlan
from coalloc.planner.uncertainty import NO_CAUTION, NO_RELAYS, Caution

__all__ = ["Solver", "solve"]

Key = TypeVar("Key", bound=Hashable)
Solver = Callable[[Demand], Callable[[Caution], TransferPlan]]
"""For a demand, a solver that returns the plan of least makespan for capacities that are lowered by some caution."""


def solve(network: Network, demand: Demand, solver: Solver) -> TransferPlan | None:
    """Return the plan that relays only files without a direct path.

    `TransferPlan.direct` is None if it relays any. Return None if all files need relays, or the budget is too small.
    """
    straight = with_direct_path(network, demand)
    near, far = _divided(demand, straight)
    if not straight:
        return None
    try:
        if not far.files:
            return _without_relays(solver(near)(NO_RELAYS))
        relayed = solver(far)(NO_CAUTION)
        direct = _without_relays(solver(_with_the_rest(network, near, relayed))(NO_RELAYS))
        return _together(network, demand, straight, direct, relayed)
    except UsageError:  # the budget is too small
        return None


def _divided(demand: Demand, straight: frozenset[tuple[str, str]]) -> tuple[Demand, Demand]:
    """Return the files for each destination that need no relays, and those that do."""
    near, far = [], []
    for file in demand.files:
        to = tuple(
            sink for sink in file.destinations if (file.name, sink) in straight or sink in file.holders or not file.size
        )
        if to:
            near.append(replace(file, destinations=to))
        if rest := tuple(sink for sink in file.destinations if sink not in to):
            far.append(replace(file, destinations=rest))
    return replace(demand, files=tuple(near)), replace(demand, files=tuple(far))


def _with_the_rest(network: Network, demand: Demand, other: TransferPlan) -> Demand:
    """Return a demand with the part of the budget that another plan leaves."""
    if demand.budget is None:
        return demand
    spent = PlanLimits(network, demand.budget).loads(other.flows).get(BUDGET, 0)
    return replace(demand, budget=max(0.0, demand.budget - float(spent)))


def _without_relays(plan: TransferPlan) -> TransferPlan:
    return replace(plan, direct=plan.makespan, certificate=replace(plan.certificate, caution=NO_RELAYS))


def _together(
    network: Network, demand: Demand, straight: frozenset[tuple[str, str]], direct: TransferPlan, relayed: TransferPlan
) -> TransferPlan | None:
    """Return both plans at once; the greater of the two bounds says how far it may be from the fastest such plan."""
    flows = _sum(direct.flows, relayed.flows)
    origins = _sum(direct.certificate.origins, relayed.certificate.origins)
    limits = PlanLimits(network, demand.budget)
    if demand.budget is not None and limits.loads(flows)[BUDGET] > limits.capacity(BUDGET) * (1 + PRECISE):
        return None
    makespan = limits.seconds(flows)
    proofs = [plan.certificate.prices for plan in (direct, relayed)]
    bounds = [bound(network, demand, prices, straight) for prices in proofs]
    least, prices = max(zip(bounds, proofs, strict=True), key=itemgetter(0))
    if not least:
        return None
    why = f"{duration(makespan)}, because of {named(network, prices)}; only files without a direct path use relays"
    tolerance = max(direct.certificate.tolerance, relayed.certificate.tolerance, makespan / least - 1)
    return TransferPlan(
        "cautious",
        makespan,
        None,
        flows,
        (*direct.paths, *relayed.paths),
        why,
        Certificate(prices, origins, tolerance, NO_RELAYS),
    )


def _sum(first: Mapping[Key, Fraction], second: Mapping[Key, Fraction]) -> dict[Key, Fraction]:
    return {key: first.get(key, Fraction(0)) + second.get(key, Fraction(0)) for key in {**first, **second}}
