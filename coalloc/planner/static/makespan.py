"""The least makespan to one destination on a network that does not change (Confluence, 2.2), with its proof."""

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from typing import NamedTuple

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

__all__ = ["solve"]


class _Found(NamedTuple):
    graph: CapacityGraph
    seconds: Fraction
    flow: MaximumFlow
    side: Mask


def solve(network: Network, demand: Demand, backend: Backend | None = None) -> TransferPlan:
    """Return the result of `coalloc.planner.least_makespan`, computed with this library."""
    backend = backend or fastest()
    sink, files = flow_question(network, demand)
    paths = tuple(resting(network, demand))
    if not files:
        empty = Certificate({}, {})
        return TransferPlan("direct", Fraction(0), Fraction(0), {}, paths, "nothing has to be sent", empty)
    arrays = Arrays(network)
    best = _least(arrays, files, sink, backend)
    prices = prices_of(best.graph, best.side)
    direct = _direct(arrays, files, sink, backend)
    why = reason(network, prices, best.seconds, direct and direct.seconds)
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


def _least(arrays: Arrays, files: Sequence[File], sink: str, backend: Backend) -> _Found:
    graph = graph_of(arrays, files, sink)
    try:
        time, flow, side = least_time(graph, backend)
    except NoWay as error:
        lost = sorted({name for _, name in graph.groups.values()} & _hosts(graph, error.side))
        raise UsageError(
            f"there is no path from {', '.join(lost)} to {sink}", "add links, or leave out these files"
        ) from None
    return _Found(graph, time * graph.second, flow, side)


def _direct(arrays: Arrays, files: Sequence[File], sink: str, backend: Backend) -> _Found | None:
    graph = graph_of(arrays, files, sink, direct=True)
    try:
        time, flow, side = least_time(graph, backend)
    except NoWay:
        return None
    return _Found(graph, time * graph.second, flow, side)


def _hosts(graph: CapacityGraph, side: Mask) -> set[str]:
    """Return the names of the hosts whose sending vertex is on the source's side of the minimum cut."""
    n = len(graph.arrays.hosts)
    return {host.name for host, inside in zip(graph.arrays.hosts, side[n : 2 * n], strict=True) if inside}
