"""Conversion of a graph's arcs and vertices back to links, files and limits."""

from collections.abc import Iterable
from fractions import Fraction

import numpy as np

from coalloc.planner.capacity_graph import ONE, CapacityGraph, Mask
from coalloc.planner.network import File, LinkKey
from coalloc.planner.paths import dealt
from coalloc.planner.results import Limit
from coalloc.planner.solvers.maxflow import MaximumFlow

__all__ = ["flows_of", "in_bytes", "origins_of", "prices_of"]


def prices_of(graph: CapacityGraph, side: Mask) -> dict[Limit, Fraction]:
    """Return the prices of the limits in a cut, so that a byte that crosses the cut pays at least one."""
    prices: dict[Limit, Fraction] = {}
    arcs = np.flatnonzero(graph.crossing(side))
    links = arcs[arcs < len(graph.links)]
    prices.update((Limit("link", key), ONE) for key in graph.arrays.keys(graph.links[links]))
    for arc in arcs[len(links) :].tolist():
        if arc in graph.limits:
            limit, price = graph.limits[arc]
            prices[limit] = max(price, prices.get(limit, price))
    return prices


def in_bytes(graph: CapacityGraph, flow: MaximumFlow, arc: int) -> Fraction:
    """Return the bytes that a flow sends over an arc."""
    return Fraction(flow.amounts.get(arc, 0) * graph.unit, 2 * flow.scale)


def flows_of(graph: CapacityGraph, flow: MaximumFlow) -> dict[LinkKey, Fraction]:
    """Return the bytes over each link."""
    links = [arc for arc in sorted(flow.amounts) if arc < len(graph.links)]
    keys = graph.arrays.keys(graph.links[links])
    return {key: in_bytes(graph, flow, arc) for key, arc in zip(keys, links, strict=True)}


def origins_of(graph: CapacityGraph, flow: MaximumFlow, files: Iterable[File]) -> dict[tuple[str, str], Fraction]:
    """Return the bytes of each file that each of its holders sends."""
    shares: dict[frozenset[str], list[tuple[str, int]]] = {}
    for arc, (holders, name) in graph.groups.items():
        shares.setdefault(holders, []).append((name, flow.amounts.get(arc, 0) * graph.unit))
    return {
        (file.name, name): Fraction(part, 2 * flow.scale)
        for file, parts in dealt(files, shares, 2 * flow.scale)
        for name, part in parts.items()
    }
