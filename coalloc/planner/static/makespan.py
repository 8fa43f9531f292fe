"""The least makespan to one destination on a network that does not change (Confluence, 2.2), with its proof."""

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from functools import cached_property
from typing import NamedTuple

import numpy as np

from coalloc.errors import UsageError
from coalloc.planner.capacity_graph import Arrays, CapacityGraph, Mask, graph_of
from coalloc.planner.demands import flow_question, resting
from coalloc.planner.from_graph import flows_of, origins_of, prices_of
from coalloc.planner.limits import reason
from coalloc.planner.network import Demand, File, Network
from coalloc.planner.paths import paths_of, without_cycles
from coalloc.planner.results import Certificate, TransferPlan
from coalloc.planner.solvers.maxflow import Backend, MaximumFlow, fastest
from coalloc.planner.solvers.newton import NoWay, least_time
from coalloc.planner.uncertainty import NO_CAUTION, NO_RELAYS, Caution, direct_pairs, lowered_capacity, spread

__all__ = ["MakespanSolver", "solve"]


class _Found(NamedTuple):
    graph: CapacityGraph
    seconds: Fraction
    flow: MaximumFlow
    side: Mask


def solve(network: Network, demand: Demand, backend: Backend | None = None) -> TransferPlan:
    """Return the result of `coalloc.planner.least_makespan`, computed with this library."""
    return MakespanSolver(network, demand, backend).plan()


class MakespanSolver:
    """A question for max-flow in arrays, to be answered with several degrees of caution.

    :raises UsageError: when max-flow does not apply
    """

    def __init__(self, network: Network, demand: Demand, backend: Backend | None = None) -> None:
        self._network, self._demand, self._backend = network, demand, backend or fastest()
        self._sink, self._files = flow_question(network, demand)
        self._arrays = Arrays(network) if self._files else None

    def plan(self, caution: Caution = NO_CAUTION) -> TransferPlan:
        """Return the plan of least makespan with lowered capacities, or without relays.

        It is compared with the plan without relays (`TransferPlan.direct`) only for the stated capacities.

        :raises UsageError: when no links lead to the destination
        """
        paths = tuple(resting(self._network, self._demand))
        if self._arrays is None:
            empty = Certificate({}, {})
            return TransferPlan("direct", Fraction(0), Fraction(0), {}, paths, "nothing has to be sent", empty)
        files, backend, straight = self._files, self._backend, caution == NO_RELAYS
        best = straight and self._direct
        if not best:
            best = _least(self._lowered(self._arrays, caution), files, self._sink, backend, straight)
        prices = prices_of(best.graph, best.side)
        direct = self._direct if straight or caution == NO_CAUTION else None
        why = reason(self._network, prices, best.seconds, direct and direct.seconds)
        # Do not use relays without a gain.
        use = direct if direct and direct.seconds == best.seconds else best
        flow = replace(use.flow, amounts=without_cycles(use.graph, use.flow.amounts))
        return TransferPlan(
            "direct" if use is direct else "least makespan",
            best.seconds,
            direct and direct.seconds,
            flows_of(use.graph, flow),
            (*paths, *paths_of(use.graph, flow, files, backend)),
            why,
            Certificate(prices, origins_of(use.graph, flow, files)),
        )

    def _lowered(self, arrays: Arrays, caution: Caution) -> Arrays:
        if caution in (NO_CAUTION, NO_RELAYS):
            return arrays
        pairs = direct_pairs(self._demand)
        cautions = (caution.direct if key[:2] in pairs else caution.relayed for key in self._network.links)
        found = map(lowered_capacity, arrays.capacities.tolist(), self._spreads, cautions)
        return arrays.with_capacities(np.fromiter(found, np.int64, len(arrays.capacities)))

    @cached_property
    def _direct(self) -> _Found | None:
        """The best plan without relays, if there is one."""
        assert self._arrays is not None, "there are files to send"
        graph = graph_of(self._arrays, self._files, self._sink, direct=True)
        try:
            time, flow, side = least_time(graph, self._backend)
        except NoWay:
            return None
        return _Found(graph, time * graph.second, flow, side)

    @cached_property
    def _spreads(self) -> list[float]:
        return [spread(link) for link in self._network.links.values()]


def _least(arrays: Arrays, files: Sequence[File], sink: str, backend: Backend, direct: bool) -> _Found:
    graph = graph_of(arrays, files, sink, direct)
    try:
        time, flow, side = least_time(graph, backend)
    except NoWay as error:
        lost = sorted({name for _, name in graph.groups.values()} & _hosts(graph, error.side))
        raise UsageError(
            f"there is no path from {', '.join(lost)} to {sink}", "add links, or leave out these files"
        ) from None
    return _Found(graph, time * graph.second, flow, side)


def _hosts(graph: CapacityGraph, side: Mask) -> set[str]:
    """Return the names of the hosts whose sending vertex is on the source's side of the minimum cut."""
    n = len(graph.arrays.hosts)
    return {host.name for host, inside in zip(graph.arrays.hosts, side[n : 2 * n], strict=True) if inside}
