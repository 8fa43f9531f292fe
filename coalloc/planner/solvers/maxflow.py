"""Max-flow on arrays, exact for integers of any size, with OR-tools (64 bits) if installed, else SciPy (32 bits)."""

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from fractions import Fraction
from importlib.util import find_spec
from itertools import compress
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from coalloc.planner.capacity_graph import CapacityGraph, crossing_arcs
from coalloc.planner.solvers.wide_integers import exact_sum, product

__all__ = ["BACKENDS", "ORTOOLS", "SCIPY", "Backend", "MaximumFlow", "fastest", "fill"]

Vertices = NDArray[np.int32]
Integers = NDArray[np.int64]
Mask = NDArray[np.bool_]


class Backend(NamedTuple):
    """A library for max-flow. `solve` takes the number of vertices, tails, heads, capacities, source and sink.

    It returns the flow over each arc, and the vertices on the source's side of a minimum cut. Capacities, and the
    flow, are at most 2^bits.
    """

    name: str
    bits: int
    solve: Callable[[int, Vertices, Vertices, Integers, int, int], tuple[Integers, Mask]]


@dataclass
class MaximumFlow:
    """A flow within some time, and a cut that bounds the maximum flow.

    :param scale: parts per unit of the graph
    :param amounts: parts over each arc in use
    :param value: parts that reach the sink
    :param side: the vertices on the source's side of the cut
    :param cut: parts that can pass the cut, at least `value`
    """

    scale: int
    amounts: dict[int, int] = field(default_factory=dict)
    value: int = 0
    side: Mask = field(default_factory=lambda: np.zeros(0, np.bool_))
    cut: int = 0


def fill(graph: CapacityGraph, time: Fraction, backend: Backend, most: bool = False) -> MaximumFlow:
    """Return a flow that sends all units within a time, or a cut that shows that this is impossible.

    Either `value` is all parts, or `cut` is less than all parts.

    :param time: time in the graph's unit; its numerator is below 2^63
    :param most: whether to find the maximum flow if not all parts can be sent; `value` is then `cut`

    If the library's integers are too small for the numbers, it is called several times, first for the upper bits of all
    capacities, then for lower bits:

    Let f be the flow so far and r the residual capacities, and let f' be a max-flow for r / 2^k, rounded down, with its
    minimum cut S. f + 2^k f' is a flow, since 2^k f' <= r. An arc out of S has only the residual capacity that rounding
    removed, at most 1 + 2^-49 x 2^bits in units of 2^k. So the flow can still grow by less than 2^k x (arcs out of S) x
    this. The bound, computed exactly, is `left` for the next turn, whose k is smaller, as there are fewer than 2^27
    arcs. Limiting capacities to `bound` > left / 2^k loses no flow, as a minimum cut has no such arc. With k = 0
    nothing is rounded, and the flow is maximum.

    After the first turn, mostly the lower bits of arcs in use are left. These arcs are few, so a turn tries them alone
    before all arcs. A flow on them is also a flow on the graph.
    """
    flow, whole = MaximumFlow(time.denominator), graph.total * time.denominator
    everything = _Part(graph, time)
    left = whole
    while left:
        _turn(everything, flow, backend, left)
        if flow.cut < whole and not most:
            break
        left = min(flow.cut, whole) - flow.value
        if left:
            left -= _over_used_arcs(graph, time, flow, backend, left)
    return flow


def _over_used_arcs(graph: CapacityGraph, time: Fraction, flow: MaximumFlow, backend: Backend, left: int) -> int:
    """Send more over arcs in use only; return the additional parts sent, at most `left`."""
    before, cut, side = flow.value, flow.cut, flow.side
    part = _Part(graph, time, np.fromiter(sorted({*flow.amounts, *graph.offsets}), np.int64))
    goal = before + left
    while left:
        _turn(part, flow, backend, left)
        left = min(flow.cut, goal) - flow.value
    # A cut of these arcs is not a cut of the whole graph, so keep the earlier one.
    flow.cut, flow.side = cut, side
    return flow.value - before


class _Part:
    """Arcs of a graph, with their capacities in parts: slope x numerator + offset x denominator.

    :param arcs: numbers of the arcs in ascending order; None for all
    """

    def __init__(self, graph: CapacityGraph, time: Fraction, arcs: Integers | None = None) -> None:
        self.graph, self.p, self.arcs = graph, time.numerator, arcs
        self.tails, self.heads, self.slopes = graph.tails, graph.heads, graph.slopes.copy()
        if arcs is not None:
            self.tails, self.heads, self.slopes = graph.tails[arcs], graph.heads[arcs], graph.slopes[arcs]
        self.places = self.places_of(graph.offsets)
        """Positions of the arcs with an offset, whose capacities are in `odd`."""
        self.odd: list[int] = [
            max(0, slope * time.numerator + offset * time.denominator)
            for slope, offset in zip(self.slopes[self.places].tolist(), graph.offsets.values(), strict=True)
        ]
        self.slopes[self.places] = 0
        self.starts = self.numbers(np.flatnonzero(self.tails == graph.source))

    def places_of(self, arcs: Collection[int]) -> Integers:
        """Return the positions of arcs of the graph."""
        numbers = np.fromiter(arcs, np.int64, len(arcs))
        return numbers if self.arcs is None else np.searchsorted(self.arcs, numbers)

    def numbers(self, places: Integers) -> list[int]:
        """Return the numbers of the arcs at some positions."""
        found: list[int] = (places if self.arcs is None else self.arcs[places]).tolist()
        return found

    def through(self, side: Mask) -> int:
        """Return the capacity of a cut."""
        crossing = crossing_arcs(self.tails, self.heads, side)
        over = crossing[self.places].tolist()
        return exact_sum(self.slopes[crossing]) * self.p + sum(compress(self.odd, over))

    def residual(self, amounts: dict[int, int], shift: int, bound: int) -> tuple[Integers, Integers]:
        """Return residual capacities, in units of 2^shift and at most `bound`, and the positions of the arcs in use."""
        found = product(self.slopes, self.p, shift, bound)
        used = self.places_of(amounts)
        capacities = dict(zip(self.places.tolist(), self.odd, strict=True))
        found[self.places] = [min(capacity >> shift, bound) for capacity in self.odd]
        slopes = self.slopes[used].tolist()
        found[used] = [
            min((capacities.get(place, slope * self.p) - amount) >> shift, bound)
            for place, slope, amount in zip(used.tolist(), slopes, amounts.values(), strict=True)
        ]
        return found, used


def _turn(part: _Part, flow: MaximumFlow, backend: Backend, left: int) -> None:
    """Call the library once, to add at most `left` parts to the flow."""
    shift = max(0, left.bit_length() - backend.bits)
    bound = (left >> shift) + 1
    forward, used = part.residual(flow.amounts, shift, bound)
    back = np.array([min(amount >> shift, bound) for amount in flow.amounts.values()], np.int64)
    tails, heads, capacities = part.tails, part.heads, forward
    if len(used):
        tails, heads = np.concatenate([tails, heads[used]]), np.concatenate([heads, tails[used]])
        capacities = np.concatenate([forward, back])
    found, flow.side = backend.solve(part.graph.vertices, tails, heads, capacities, part.graph.source, part.graph.sink)
    amounts = dict(flow.amounts)
    places = np.flatnonzero(found)
    ahead = int(np.searchsorted(places, len(forward)))
    arcs = part.numbers(np.concatenate([places[:ahead], used[places[ahead:] - len(forward)]]))
    more = found[places]
    more[ahead:] *= -1
    for arc, amount in zip(arcs, more.tolist(), strict=True):
        amounts[arc] = amounts.get(arc, 0) + (amount << shift)
    flow.amounts = {arc: amount for arc, amount in amounts.items() if amount}
    flow.value = sum(amounts.get(arc, 0) for arc in part.starts)
    flow.cut = part.through(flow.side)


def _ortools(
    vertices: int, tails: Vertices, heads: Vertices, capacities: Integers, source: int, sink: int
) -> tuple[Integers, Mask]:
    from ortools.graph.python.max_flow import SimpleMaxFlow

    solver = SimpleMaxFlow()
    arcs = solver.add_arcs_with_capacity(tails, heads, capacities)
    status = solver.solve(source, sink)
    if status != SimpleMaxFlow.OPTIMAL:
        raise ArithmeticError(f"OR-tools failed with status {status}, although the numbers cannot overflow")
    side = np.zeros(vertices, np.bool_)
    side[solver.get_source_side_min_cut()] = True
    return np.asarray(solver.flows(arcs)), side


def _scipy(
    vertices: int, tails: Vertices, heads: Vertices, capacities: Integers, source: int, sink: int
) -> tuple[Integers, Mask]:
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import breadth_first_order, maximum_flow

    shape = (vertices, vertices)
    some = np.flatnonzero(capacities)
    matrix = csr_array((capacities[some].astype(np.int32), (tails[some], heads[some])), shape)
    flow = maximum_flow(matrix, source, sink).flow.tocoo()
    # SciPy's flow is a matrix f with f = -f^T. `left` is above 0 exactly where the residual graph has an arc.
    order = np.argsort(places := tails[some].astype(np.int64) * vertices + heads[some])
    sent = flow.data > 0
    found = np.zeros(len(capacities), np.int64)
    keys = flow.row[sent].astype(np.int64) * vertices + flow.col[sent]
    found[some[order[np.searchsorted(places, keys, sorter=order)]]] = flow.data[sent]
    left = (matrix - flow.tocsr()).tocsr()
    left.eliminate_zeros()
    side = np.zeros(vertices, np.bool_)
    side[breadth_first_order(left, source, return_predecessors=False)] = True
    return found, side


ORTOOLS = Backend("ortools", 61, _ortools)
# An arc and its reverse, both of capacity 2^29, may leave 2^30 in one direction: less than 2^31.
SCIPY = Backend("scipy", 29, _scipy)
BACKENDS = (ORTOOLS, SCIPY)


def fastest() -> Backend:
    """Return the fastest library that is installed."""
    return ORTOOLS if find_spec("ortools") else SCIPY
