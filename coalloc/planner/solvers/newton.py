"""The least time in which a graph can carry all units, by the discrete Newton method on cuts.

The capacity of a cut is a line in T, and the maximum flow in T seconds is the minimum of all lines, a concave function.
If T is too short, the line of the minimum cut at T reaches the total at a later time, which is a lower bound of the
solution: the next step continues there. The search ends at the first T in which all units can pass, and the last cut
proves that no T is less. The line of each cut is flatter than the previous one, so the search ends, in practice after
one or two steps.
"""

from collections.abc import Iterator
from fractions import Fraction
from math import inf

import numpy as np

from coalloc.planner.capacity_graph import CapacityGraph, Mask
from coalloc.planner.solvers.maxflow import Backend, MaximumFlow, fill
from coalloc.planner.solvers.wide_integers import exact_sum

__all__ = ["NoWay", "least_time"]


class NoWay(Exception):
    """A cut without any capacity that grows, so that no finite time is enough."""

    def __init__(self, side: Mask) -> None:
        super().__init__("no finite time is enough")
        self.side = side


def least_time(graph: CapacityGraph, backend: Backend) -> tuple[Fraction, MaximumFlow, Mask]:
    """Return the least time, the flow in it, and the source's side of the cut that proves that it is the least.

    :raises NoWay: when no finite time is enough
    """
    side = _first(graph)
    while True:
        time = _root(graph, side)
        flow = fill(graph, time, backend)
        if flow.value == graph.total * flow.scale:
            return time, flow, side
        side = flow.side


def _root(graph: CapacityGraph, side: Mask) -> Fraction:
    """Return the time in which all units can pass this cut."""
    crossing = graph.crossing(side)
    slope = exact_sum(graph.slopes[crossing])
    offset = sum(offset for arc, offset in graph.offsets.items() if crossing[arc])
    if offset >= graph.total:
        return Fraction(0)
    if not slope:
        raise NoWay(side)
    return Fraction(graph.total - offset, slope)


def _first(graph: CapacityGraph) -> Mask:
    """Return the narrowest cut around the sink or a holder, which is often the final one.

    It is chosen with floats, which is safe, since every cut gives a lower bound.
    """
    weights = graph.slopes.astype(np.float64)
    weights[[arc for arc, offset in graph.offsets.items() if offset > 0]] = np.inf
    leaving = np.bincount(graph.tails, weights, graph.vertices).tolist()
    entering = np.bincount(graph.heads, weights, graph.vertices).tolist()
    cuts = [(_seconds(graph.total, entering, new), inside, False) for new, inside in _around_sink(graph)]
    for arc, around in _around_holders(graph):
        cuts += [(_seconds(graph.offsets[arc], leaving, new), inside, True) for new, inside in around]
    _, inside, held = max(cuts, key=lambda cut: cut[0])
    side = np.full(graph.vertices, not held)
    side[inside] = held
    side[graph.source] = True
    return side


def _seconds(units: int, limits: list[float], vertices: list[int]) -> float:
    limit = sum(map(limits.__getitem__, vertices))
    return units / limit if limit else inf


Around = list[tuple[list[int], list[int]]]
"""Growing sets of vertices: for each set, its vertices with arcs to the outside, and all its vertices."""


def _around_sink(graph: CapacityGraph) -> Around:
    at, ports = graph.host, graph.arrays.ports[False][graph.host]
    return [([graph.sink], [graph.sink]), ([at], [graph.sink, at]), (ports, [graph.sink, at, *ports])]


def _around_holders(graph: CapacityGraph) -> Iterator[tuple[int, Around]]:
    """Yield, for the files with a single holder, the arc by which they enter, and growing sets around the holder."""
    n = len(graph.arrays.hosts)
    for arc, (holders, name) in graph.groups.items():
        if len(holders) == 1:
            host, enter = graph.arrays.index[name], int(graph.heads[arc])
            at, ports = n + host, graph.arrays.ports[True][host]
            yield arc, [([enter], [enter]), ([at], [enter, at]), (ports, [enter, at, *ports])]
