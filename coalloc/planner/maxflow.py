"""Max-flow on arrays, exact for integers of any size, by what is installed: OR-tools (64 bits) or SciPy (32 bits)."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction
from importlib.util import find_spec
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from coalloc.planner.graph import Graph
from coalloc.planner.wide import exact_sum, floor_shifted

__all__ = ["BACKENDS", "ORTOOLS", "SCIPY", "Backend", "Flow", "fastest", "fill"]

Vertices = NDArray[np.int32]
Integers = NDArray[np.int64]
Mask = NDArray[np.bool_]


class Backend(NamedTuple):
    """A library. `solve` takes the number of vertices, tails, heads, capacities, source and sink.

    Capacities are at most 2^bits, and so is the flow. The answer is the flow over each arc, and the vertices on the
    source's side of a minimum cut.
    """

    name: str
    bits: int
    solve: Callable[[int, Vertices, Vertices, Integers, int, int], tuple[Integers, Mask]]


@dataclass
class Flow:
    """What is sent in a time, and a cut that shows how near to the most that is.

    :param scale: how many parts a unit of the graph has here
    :param amounts: parts over each arc that is used
    :param value: parts that reach the sink
    :param side: the vertices on the source's side of the cut
    :param cut: parts that the cut lets pass, at least `value`
    """

    scale: int
    amounts: dict[int, int] = field(default_factory=dict)
    value: int = 0
    side: Mask = field(default_factory=lambda: np.zeros(0, np.bool_))
    cut: int = 0


def fill(graph: Graph, time: Fraction, backend: Backend, most: bool = False) -> Flow:
    """Send all that has to be sent within a time, or show that this cannot be.

    Either `value` is all, or `cut` is less than that.

    :param time: in the graph's unit; its numerator is below 2^63
    :param most: also if it cannot, find the most that can: `value` is then `cut`

    A library whose integers are too small for the numbers is asked several times, first about the upper bits of all
    capacities, then about what is left of them:

    Let all flow be f so far and r the residual capacities, and let f' be a max-flow for floor(r / 2^k), with its
    minimum cut S. f + 2^k f' is a flow, since 2^k f' <= r. Every arc out of S has a residual capacity below 2^k now:
    else its floor would be at least 1, and S not be cut. So what can still be sent is less than 2^k x (arcs out of S):
    this, known exactly, is `left` for the next turn, and its k is smaller, as libraries' bits exceed those of the
    number of arcs. Nothing is lost when capacities are set to `bound` > left / 2^k: no cut of that capacity is a
    minimum one. With k = 0 the flow is a maximum one.
    """
    capacities = _Capacities(graph, time)
    flow, whole = Flow(time.denominator), graph.total * time.denominator
    left = whole
    while left:
        shift = max(0, left.bit_length() - backend.bits)
        _step(graph, capacities, flow, backend, shift, (left >> shift) + 1)
        flow.cut = capacities.through(flow.side)
        left = 0 if flow.cut < whole and not most else min(flow.cut, whole) - flow.value
    return flow


class _Capacities:
    """Capacities in parts: slope x numerator + offset x denominator."""

    def __init__(self, graph: Graph, time: Fraction) -> None:
        self.graph, self.p = graph, time.numerator
        self.offset = np.fromiter(graph.offsets, np.int64, len(graph.offsets))
        self.slopes = graph.slopes.copy()
        self.slopes[self.offset] = 0
        """Of the arcs that have no offset."""
        self.odd = {
            arc: max(0, int(graph.slopes[arc]) * time.numerator + offset * time.denominator)
            for arc, offset in graph.offsets.items()
        }

    def through(self, side: Mask) -> int:
        crossing = side[self.graph.tails] & ~side[self.graph.heads]
        odd = sum(self.odd[arc] for arc in self.offset[crossing[self.offset]].tolist())
        return exact_sum(self.slopes[crossing]) * self.p + odd

    def residual(self, amounts: dict[int, int], shift: int, bound: int) -> Integers:
        found = floor_shifted(self.slopes, self.p, shift, bound)
        for arc, capacity in self.odd.items():
            found[arc] = min((capacity - amounts.get(arc, 0)) >> shift, bound)
        for arc, amount in amounts.items():
            if arc not in self.odd:
                found[arc] = min((int(self.slopes[arc]) * self.p - amount) >> shift, bound)
        return found


def _step(graph: Graph, capacities: _Capacities, flow: Flow, backend: Backend, shift: int, bound: int) -> None:
    """Ask the library once."""
    used = np.fromiter(flow.amounts, np.int64, len(flow.amounts))
    forward = capacities.residual(flow.amounts, shift, bound)
    back = np.array([min(amount >> shift, bound) for amount in flow.amounts.values()], np.int64)
    found, flow.side = backend.solve(
        graph.vertices,
        np.concatenate([graph.tails, graph.heads[used]]),
        np.concatenate([graph.heads, graph.tails[used]]),
        np.concatenate([forward, back]),
        graph.source,
        graph.sink,
    )
    more: Counter[int] = Counter(flow.amounts)
    for number in np.flatnonzero(found).tolist():
        if number < len(forward):
            more[number] += int(found[number]) << shift
        else:
            more[int(used[number - len(forward)])] -= int(found[number]) << shift
    flow.amounts = {arc: amount for arc, amount in more.items() if amount}
    flow.value = sum(more[arc] for arc in np.flatnonzero(graph.tails == graph.source).tolist())


def _ortools(
    vertices: int, tails: Vertices, heads: Vertices, capacities: Integers, source: int, sink: int
) -> tuple[Integers, Mask]:
    from ortools.graph.python.max_flow import SimpleMaxFlow

    solver = SimpleMaxFlow()
    arcs = solver.add_arcs_with_capacity(tails, heads, capacities)
    status = solver.solve(source, sink)
    if status != SimpleMaxFlow.OPTIMAL:
        raise ArithmeticError(f"OR-tools says {status} of numbers that cannot overflow")
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
    # What SciPy sends is a matrix f with f = -f^T. What is left is above 0 just where its residual graph has an arc.
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
    """Of those that are installed."""
    return ORTOOLS if find_spec("ortools") else SCIPY
