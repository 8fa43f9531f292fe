"""Exact flows from the floats of linear programs, which lose the bytes of small files and overload narrow links."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from fractions import Fraction
from functools import cached_property, partial
from math import inf
from typing import Literal

import numpy as np

from coalloc.planner.capacity_graph import CapacityGraph, Mask
from coalloc.planner.limits import BUDGET, PlanLimits
from coalloc.planner.network import Network
from coalloc.planner.paths import FlowLeft, without_cycles
from coalloc.planner.results import Limit
from coalloc.planner.solvers.linear import LinearOptimum
from coalloc.planner.solvers.maxflow import MaximumFlow
from coalloc.planner.static.little_paths import Order, little_path

__all__ = ["NoPathError", "Placing", "exact_flows"]

PARTS = 2**40
"""Number of parts of a byte; flows are counted in such parts."""
MOST_PATHS = 16
"""Maximum number of paths that are searched for the lost bytes of files with the same holders."""
Placing = Literal["short", "wide"]
"""Where lost bytes go: all to one path, or to several with free capacity, of which the widest is first."""
ORDERS: Mapping[Placing, Order] = {
    "short": lambda width, price, length: (price, length),
    "wide": lambda width, price, length: (-width, price, length),
}


class NoPathError(Exception):
    """A file without any path that has capacity; HiGHS did not notice, as the file is so small."""


class FreeCapacity:
    """The capacity of limits that flows have not used in some seconds, in parts of bytes, and the rest of the budget.

    All methods take an arc, or a path of arcs, of the graph of a destination.
    """

    def __init__(self, network: Network, budget: float | None, seconds: Fraction) -> None:
        self._network, self._limits = network, PlanLimits(network, budget)
        self._seconds = seconds
        self._left: dict[Limit, float] = {}
        self._takes: dict[tuple[int, int], list[tuple[Limit, float]]] = {}

    def takes(self, graph: CapacityGraph, arc: int) -> list[tuple[Limit, float]]:
        """Return the limits of an arc, each with how much of it a byte uses."""
        known = self._takes.get((graph.host, arc))
        if known is None:
            known = self._takes[graph.host, arc] = self._found(graph, arc)
        return known

    def _found(self, graph: CapacityGraph, arc: int) -> list[tuple[Limit, float]]:
        if arc in graph.limits:
            limit, price = graph.limits[arc]
            return [(limit, float(1 / price))]
        if arc >= len(graph.links):
            return []
        (key,) = graph.arrays.keys(graph.links[[arc]])
        # Uplinks, downlinks and disks have arcs of their own.
        kinds = ("link", "shared", "budget")
        return [(limit, float(take)) for limit, take in self._limits.by(key) if take and limit.kind in kinds]

    def width(self, graph: CapacityGraph, path: Sequence[int]) -> float:
        """Return the parts of bytes that a path can still carry; `inf` without limits."""
        total: defaultdict[Limit, float] = defaultdict(float)
        for arc in path:
            for limit, take in self.takes(graph, arc):
                total[limit] += take
        return min((self._of(limit) / take for limit, take in total.items()), default=inf)

    def take(self, graph: CapacityGraph, path: Sequence[int], wanted: int) -> int:
        """Take up to the wanted parts of bytes from a path; return how many."""
        width = max(0.0, self.width(graph, path))
        most = wanted if wanted <= width else int(width)
        for arc in path if most else ():
            for limit, take in self.takes(graph, arc):
                self._left[limit] = self._of(limit) - most * take
        return most

    def price(self, graph: CapacityGraph, arc: int) -> float:
        """Return how much of the budget a byte on an arc uses; 0 without a budget."""
        return next((take for limit, take in self.takes(graph, arc) if limit == BUDGET), 0.0)

    def _of(self, limit: Limit) -> float:
        if limit not in self._left:
            seconds = 1 if limit == BUDGET else self._seconds
            self._left[limit] = float(self._limits.capacity(limit) * seconds * PARTS)
        return self._left[limit]


def exact_flows(
    network: Network, budget: float | None, rates: LinearOptimum, placing: Placing, seconds: Fraction
) -> dict[str, MaximumFlow]:
    """Return an exact flow to each destination, in parts of bytes, from flows in floats that are nearly conserved.

    :param seconds: time in which the flows should pass all limits, if they have a choice
    :raises NoPathError: when a file has no path with any capacity
    """
    free = FreeCapacity(network, budget, seconds)
    flows = {
        sink: _ExactFlow(graph, _usable(network, budget, graph), rates.bytes[sink].tolist())
        for sink, graph in rates.graphs.items()
    }
    if placing != "short":
        # Small files first: others have more ways, and lose little by them.
        for _, sink, entry in sorted(
            (flow.sizes[entry], sink, entry) for sink, flow in flows.items() for entry in flow.sizes
        ):
            flows[sink].place(entry, free, ORDERS[placing])
    return {sink: flow.completed(free) for sink, flow in flows.items()}


def _usable(network: Network, budget: float | None, graph: CapacityGraph) -> Mask:
    """Return whether each arc has any capacity: HiGHS may leave tiny flows over those that have none."""
    usable: Mask = graph.slopes > 0
    usable[[arc for arc, offset in graph.offsets.items() if offset > 0]] = True
    m = len(graph.links)
    closed = {key for each in network.shared if not each.capacity for key, weight in each.weights.items() if weight}
    if closed:
        usable[:m] &= [key not in closed for key in graph.arrays.keys(graph.links)]
    if budget == 0:
        free = np.array([not link.price for link in network.links.values()], np.bool_)
        usable[:m] &= free[graph.links]
    return usable


class _ExactFlow:
    """The flow to one destination: paths with their amounts, for each arc by which files leave the source.

    :param found: bytes over each arc
    """

    def __init__(self, graph: CapacityGraph, usable: Mask, found: Sequence[float]) -> None:
        self._graph, self._usable = graph, usable
        parts = {arc: int(size * PARTS) for arc, size in enumerate(found) if size > 0 and usable[arc]}
        left = FlowLeft(graph, without_cycles(graph, parts))
        self._entered = _entered(graph)
        self.sizes = {entry: graph.offsets[entry] * graph.unit * PARTS // 2 for entry in self._entered}
        """Parts of bytes that enter."""
        self._paths = {
            entry: [each for arc in arcs for each in _paths(left, arc)] for entry, arcs in self._entered.items()
        }

    def place(self, entry: int, free: FreeCapacity, order: Order) -> None:
        """Reduce paths to the free capacity; place the bytes that are lacking then, on the same paths or others."""
        paths, lacking = sorted(self._paths[entry], reverse=True), self.sizes[entry]
        placed = []
        for most, path in paths:
            placed.append((free.take(self._graph, path, min(most, lacking)), path))
            lacking -= placed[-1][0]
        for _, path in paths:
            placed.append((free.take(self._graph, path, lacking), path))
            lacking -= placed[-1][0]
        for _ in range(MOST_PATHS):
            found = self._searched(entry, partial(self._width, free), free, order) if lacking else None
            amount = free.take(self._graph, found, lacking) if found else 0
            if not found or not amount:
                break
            placed.append((amount, found))
            lacking -= amount
        self._paths[entry] = placed

    def completed(self, free: FreeCapacity) -> MaximumFlow:
        """Return the flow, whose missing or surplus bytes take the path with the largest flow, or the shortest one.

        :raises NoPathError: when there is none
        """
        amounts = Counter(self.sizes)
        for entry, paths in self._paths.items():
            lacking = self.sizes[entry] - sum(most for most, _ in paths)
            most, thickest = max(paths, default=(0, []))
            if lacking and not most:
                found = self._searched(entry, lambda _: 1.0, free, ORDERS["short"])
                if found is None:
                    raise NoPathError
                thickest = found
            for size, each in (*paths, (lacking, thickest)):
                amounts.update({arc: size for arc in each if arc != entry})
        return MaximumFlow(self._graph.unit * PARTS // 2, without_cycles(self._graph, +amounts))

    @cached_property
    def _onward(self) -> FlowLeft:
        """All arcs with any capacity."""
        return FlowLeft(self._graph, dict.fromkeys(np.flatnonzero(self._usable).tolist(), 1))

    def _width(self, free: FreeCapacity, arc: int) -> float:
        return free.width(self._graph, [arc])

    def _searched(
        self, entry: int, width: Callable[[int], float], free: FreeCapacity, order: Order
    ) -> list[int] | None:
        price = partial(free.price, self._graph)
        return little_path(self._onward, self._graph.sink, self._entered[entry], width, price, order)


def _entered(graph: CapacityGraph) -> dict[int, list[int]]:
    """Return, for each arc by which files leave the source, the arcs by which they enter their holders."""
    entries = {int(graph.heads[arc]): arc for arc in np.flatnonzero(graph.tails == graph.source).tolist()}
    found: dict[int, list[int]] = {}
    for arc in graph.groups:
        found.setdefault(arc if graph.tails[arc] == graph.source else entries[int(graph.tails[arc])], []).append(arc)
    return found


def _paths(left: FlowLeft, arc: int) -> Iterator[tuple[int, list[int]]]:
    while left.amounts.get(arc):
        path, most = left.take(arc)
        if not most:
            return
        yield most, path
