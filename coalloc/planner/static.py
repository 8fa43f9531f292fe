"""The least time to one destination while the network stays as it is (Confluence, 2.2), with all that proves it."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from coalloc.errors import UsageError
from coalloc.planner.demands import checked, resting
from coalloc.planner.graph import Arrays, Graph, Mask, graph_of, is_flow
from coalloc.planner.maxflow import Backend, Flow, fastest
from coalloc.planner.network import Demand, File, LinkKey, Network
from coalloc.planner.newton import NoWay, least_time
from coalloc.planner.paths import dealt, paths_of, without_cycles
from coalloc.planner.plan import Certificate, Limit, TransferPlan
from coalloc.planner.words import reason

__all__ = ["prices_of", "solve"]


class _Found(NamedTuple):
    graph: Graph
    seconds: Fraction
    flow: Flow
    side: Mask


def solve(network: Network, demand: Demand, backend: Backend | None = None) -> TransferPlan:
    """What `coalloc.planner.least.least_makespan` says, by a certain library."""
    backend = backend or fastest()
    sink = _sink(network, demand)
    paths = tuple(resting(network, demand))
    files = [file for file in demand.files if file.size and sink not in file.holders]
    if not files:
        empty = Certificate({}, {})
        return TransferPlan("direct", Fraction(0), Fraction(0), {}, paths, "nothing has to be sent", empty)
    arrays = Arrays(network)
    best = _least(arrays, files, sink, backend)
    prices = prices_of(best.graph, best.side)
    direct = _direct(arrays, files, sink, backend)
    why = reason(network, prices, best.seconds, direct and direct.seconds)
    # Relays that gain nothing are left in peace.
    use = direct if direct and direct.seconds == best.seconds else best
    flow = replace(use.flow, amounts=without_cycles(use.graph, use.flow.amounts))
    return TransferPlan(
        "direct" if use is direct else "least makespan",
        best.seconds,
        direct and direct.seconds,
        dict(_flows(use.graph, flow)),
        (*paths, *paths_of(use.graph, flow, files, backend)),
        why,
        Certificate(prices, dict(_origins(use.graph, flow, files))),
    )


def _sink(network: Network, demand: Demand) -> str:
    """:raises UsageError: when this demand needs another solver"""
    sinks = {name for file in checked(network, demand) for name in file.destinations}
    if len(sinks) > 1:
        raise UsageError("max-flow plans for one destination", "plan with coalloc.planner.plan(), or for each alone")
    (sink,) = sinks or {""}
    if not is_flow(network, demand.files):
        raise UsageError(
            "max-flow cannot plan with disks of relays that have replicas", "plan with coalloc.planner.plan()"
        )
    return sink


def _least(arrays: Arrays, files: Sequence[File], sink: str, backend: Backend) -> _Found:
    graph = graph_of(arrays, files, sink)
    try:
        time, flow, side = least_time(graph, backend)
    except NoWay as error:
        lost = sorted({name for holders, name in graph.groups.values()} & _hosts(graph, error.side))
        raise UsageError(
            f"nothing leads from {', '.join(lost)} to {sink}", "add links, or leave these files out"
        ) from None
    return _Found(graph, time * graph.second, flow, side)


def _direct(arrays: Arrays, files: Sequence[File], sink: str, backend: Backend) -> _Found | None:
    graph = graph_of(arrays, files, sink, direct=True)
    try:
        time, flow, side = least_time(graph, backend)
    except NoWay:
        return None
    return _Found(graph, time * graph.second, flow, side)


def _hosts(graph: Graph, side: Mask) -> set[str]:
    """Those whose files start on the source's side."""
    n = len(graph.arrays.hosts)
    return {host.name for host, inside in zip(graph.arrays.hosts, side[n : 2 * n], strict=True) if inside}


def prices_of(graph: Graph, side: Mask) -> dict[Limit, Fraction]:
    """A cut as prices: a byte that gets across pays at least once."""
    prices: dict[Limit, Fraction] = {}
    for arc in np.flatnonzero(side[graph.tails] & ~side[graph.heads]).tolist():
        if arc < len(graph.links):
            prices[Limit("link", graph.arrays.keys[graph.links[arc]])] = Fraction(1)
        elif arc in graph.limits:
            limit, price = graph.limits[arc]
            prices[limit] = max(price, prices.get(limit, price))
    return prices


def _bytes(graph: Graph, flow: Flow, arc: int) -> Fraction:
    return Fraction(flow.amounts.get(arc, 0) * graph.unit, 2 * flow.scale)


def _flows(graph: Graph, flow: Flow) -> Iterator[tuple[LinkKey, Fraction]]:
    for arc in sorted(flow.amounts):
        if arc < len(graph.links):
            yield graph.arrays.keys[graph.links[arc]], _bytes(graph, flow, arc)


def _origins(graph: Graph, flow: Flow, files: Iterable[File]) -> Iterator[tuple[tuple[str, str], Fraction]]:
    shares: dict[frozenset[str], list[tuple[str, int]]] = {}
    for arc, (holders, name) in graph.groups.items():
        shares.setdefault(holders, []).append((name, flow.amounts.get(arc, 0) * graph.unit))
    for file, parts in dealt(files, shares, 2 * flow.scale):
        for name, part in parts.items():
            yield (file.name, name), Fraction(part, 2 * flow.scale)
