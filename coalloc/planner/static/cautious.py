"""Plans for uncertain capacities: relays are used where they are probably faster, and hardly ever slower.

Plans with several degrees of caution are compared with the safe plan (`safe_plan.solve`), in random scenarios of the
true capacities. A plan keeps its division of bytes among paths in all scenarios. If its relays are cautious, they carry
less than they probably could, so that the direct links are the last to finish, and a relay that is slower than expected
costs nothing.
"""

from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from coalloc.planner.limits import BUDGET, PlanLimits, duration, named
from coalloc.planner.network import Demand, LinkKey, Network
from coalloc.planner.results import TransferPlan
from coalloc.planner.static import safe_plan
from coalloc.planner.static.deadline import due
from coalloc.planner.static.safe_plan import Solver
from coalloc.planner.uncertainty import NO_CAUTION, Caution, spread
from coalloc.util import human

__all__ = ["solve"]

Floats = NDArray[np.float64]
CAUTIONS = (Caution(1, 3), Caution(1, 4), Caution(2, 5), Caution(1, 6), Caution(2, 6))
"""Degrees of caution that are tried, with more and more relays."""
USUAL = (Caution(2, 5),)
"""The degree that is tried if each plan takes seconds."""
LARGE = 10_000
"""Number of links, times destinations, from which only `USUAL` is tried, unless max-flow applies."""
SCENARIOS = 400
SURE, LOSS = 0.95, 0.02
"""Minimum probability that a plan with relays takes at most this part longer than the safe plan."""
WORTH = 0.03
"""Minimum gain, as a logarithm, that justifies relays, or more of them."""
RELAYING = 0.75
"""Seconds that relays cost in each scenario: connections to them, and the time until the first bytes arrive."""


class _ComparedPlan(NamedTuple):
    """A plan with relays, compared with the safe plan.

    :param gain: mean of the logarithm of the safe plan's seconds divided by this plan's seconds
    :param chance: probability that this plan is faster
    :param sure: probability that this plan is at most `LOSS` slower
    """

    plan: TransferPlan
    gain: float
    chance: float
    sure: float


def solve(network: Network, demand: Demand, solver: Solver) -> TransferPlan:
    """Return the plan with relays that probably gains most, or the safe plan, if none is safe.

    If that misses a deadline, return the safest plan that meets it, if there is one.

    :raises UsageError: when some data cannot reach a destination
    """
    exact = solver(demand)
    bold = exact(NO_CAUTION)
    safe = safe_plan.solve(network, demand, solver)
    if safe is None or bold.makespan >= safe.makespan:
        return bold if safe is None or safe.direct is not None else safe
    sinks = {sink for file in demand.files for sink in file.destinations}
    few = bold.certificate.tolerance and len(network.links) * len(sinks) > LARGE
    scenarios = _Scenarios(network, safe)
    compared = [scenarios.compared(bold)]
    for caution in USUAL if few else CAUTIONS:
        plan = _restated(network, exact(caution), safe, caution)
        if plan.makespan < safe.makespan and all(plan.flows != other.plan.flows for other in compared):
            compared.append(scenarios.compared(plan))
    best = _best(compared)
    found = _explained(network, best, safe) if best else _refused(network, safe, compared)
    earliest = due(demand)
    if earliest is None or found.makespan <= earliest:
        return found
    timely = [each for each in compared if each.plan.makespan <= earliest]
    return _explained(network, max(timely, key=lambda each: (each.sure, each.chance)), safe) if timely else found


def _best(compared: list[_ComparedPlan]) -> _ComparedPlan | None:
    best: _ComparedPlan | None = None
    for each in compared:
        if each.sure >= SURE and each.gain > WORTH + (best.gain if best else 0.0):
            best = each
    return best


def _restated(network: Network, plan: TransferPlan, safe: TransferPlan, caution: Caution) -> TransferPlan:
    """Return a plan for lowered capacities with the makespan that it has with the stated capacities."""
    return replace(
        plan,
        method="cautious",
        makespan=PlanLimits(network, None).seconds(plan.flows),
        direct=safe.direct,
        certificate=replace(plan.certificate, caution=caution),
    )


class _Scenarios:
    """Random scenarios of the true capacities, the same for all plans."""

    def __init__(self, network: Network, safe: TransferPlan) -> None:
        self._network = network
        self._random = np.random.default_rng(0)
        self._slower: dict[LinkKey, Floats] = {}
        self._safe = self._seconds(safe)

    def compared(self, plan: TransferPlan) -> _ComparedPlan:
        """Compare a plan with the safe one."""
        safe, seconds = self._safe, self._seconds(plan)
        faster, harmless = seconds < safe, seconds <= safe * (1 + LOSS)
        return _ComparedPlan(plan, float(np.log(safe / seconds).mean()), float(faster.mean()), float(harmless.mean()))

    def _seconds(self, plan: TransferPlan) -> Floats:
        found = np.full(SCENARIOS, _fixed(self._network, plan))
        for key, flow in sorted(plan.flows.items()):
            if flow:
                np.maximum(found, float(flow) * self._time(key), out=found)
        return found + RELAYING * any(len(path.hosts) > 2 for path in plan.paths)

    def _time(self, key: LinkKey) -> Floats:
        """Return the seconds that a byte takes over a link in each scenario."""
        if key not in self._slower:
            link = self._network.links[key]
            error = self._random.laplace(0, spread(link) or 1e-300, SCENARIOS)
            self._slower[key] = np.exp(error) / max(1, link.capacity)
        return self._slower[key]


def _fixed(network: Network, plan: TransferPlan) -> float:
    """Return the seconds that a plan takes because of limits that are not those of links."""
    limits = PlanLimits(network, None)
    loads = {limit: load for limit, load in limits.loads(plan.flows).items() if limit.kind != "link" and load}
    return max((float(load / limits.capacity(limit)) for limit, load in loads.items() if limit != BUDGET), default=0.0)


def _explained(network: Network, best: _ComparedPlan, safe: TransferPlan) -> TransferPlan:
    plan = best.plan
    about = f"about {duration(plan.makespan)}"
    if plan.certificate.caution is None:
        about = f"{duration(plan.makespan)} at least, because of {named(network, plan.certificate.prices)}"
    what, others = "relays", f"without relays it takes {duration(safe.makespan)}"
    if safe.direct is None:
        what = "more relays"
        others = f"relays only for files without a direct path take {duration(safe.makespan)}"
    probably = f"{what} are faster with a probability of {human.probability(best.chance)}"
    return replace(plan, chance=best.chance, reason=f"{about}; {others}; {probably}")


def _refused(network: Network, safe: TransferPlan, compared: list[_ComparedPlan]) -> TransferPlan:
    best = max(compared, key=lambda each: (each.sure >= SURE, each.gain))
    why = safe.reason
    if safe.direct is not None:
        limits = named(network, safe.certificate.prices)
        why = f"{duration(safe.makespan)} at least without relays, because of {limits}"
    more = "relays" if safe.direct is not None else "more relays"
    probably = f"{more} would be faster with a probability of {human.probability(best.chance)}"
    verdict = "but would gain too little" if best.sure >= SURE else "which is not worth the risk"
    return replace(safe, chance=best.chance, reason=f"{why}; {probably}, {verdict}")
