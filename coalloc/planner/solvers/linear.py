"""Plans beyond max-flow, as a linear program for HiGHS: several destinations, shared sets, budgets, all disks.

The program maximizes theta = 1 / T. The variables are rates, one flow for each destination, on max-flow's graph:

    inflow = outflow at each vertex               for each flow
    rate that enters = size x theta               for each flow and set of holders
    sum of weight x rate <= capacity              for each limit, over all flows
    sum of price x rate - budget x theta <= 0

HiGHS allows errors of 1e-7, so all numbers should be about one: sizes are fractions of all bytes, and rates are
relative to the total rate without the limits above, which max-flow finds for each destination alone.
"""

from collections.abc import Mapping
from fractions import Fraction
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linprog
from scipy.sparse import csr_array

from coalloc.errors import TooMuch
from coalloc.planner.capacity_graph import Arrays, CapacityGraph, graph_of
from coalloc.planner.demands import wanted
from coalloc.planner.limits import BUDGET, PlanLimits
from coalloc.planner.network import Demand, Network
from coalloc.planner.results import Limit
from coalloc.planner.solvers.maxflow import fastest
from coalloc.planner.solvers.newton import NoWay, least_time

__all__ = ["LinearOptimum", "largest_theta"]

REMEDY = "leave out hosts, links or files, or plan in parts"
Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
LEAST = 1e-12
"""Numbers below this count as 0; others are of the order of one."""
NEAR = 0.1
"""Minimum theta that counts as about one, so that its relative error is not much larger than HiGHS allows."""


class LinearOptimum(NamedTuple):
    """An optimum, in floats.

    :param graphs: the graph of each destination
    :param bytes: bytes over each arc of the graph of each destination
    :param prices: the dual solution
    :param seconds: the makespan
    """

    graphs: Mapping[str, CapacityGraph]
    bytes: Mapping[str, Floats]
    prices: Mapping[Limit, Fraction]
    seconds: Fraction


def largest_theta(network: Network, demand: Demand, direct: bool = False) -> LinearOptimum | None:
    """Return the optimum, or None if some data cannot reach a destination, at all or within the budget.

    :param demand: a demand with bytes to send
    :param direct: whether relays are excluded
    :raises TooMuch: when HiGHS gives up, for example because it lacks memory
    """
    arrays = Arrays(network)
    sinks = {sink: wanted(demand, sink) for sink in sorted({to for file in demand.files for to in file.destinations})}
    graphs = {sink: graph_of(arrays, files, sink, direct) for sink, files in sinks.items() if files}
    try:
        seconds = max(least_time(graph, fastest())[0] * graph.second for graph in graphs.values())
    except NoWay:
        return None
    return _Program(network, demand, graphs, seconds).solve()


class _Program:
    def __init__(
        self, network: Network, demand: Demand, graphs: Mapping[str, CapacityGraph], seconds: Fraction
    ) -> None:
        self.network, self.demand, self.graphs = network, demand, graphs
        ends = np.cumsum([0, *(len(graph.tails) for graph in graphs.values())]).tolist()
        self.first = dict(zip(graphs, ends, strict=False))
        self.theta = ends[-1]
        self.total = sum(graph.total * graph.unit for graph in graphs.values()) / 2
        self.rate = self.total / float(seconds)
        self.rows = [Limit("link", key) for key in network.links]
        """The limit of each row; the links come first, in their order."""
        self.numbers: dict[Limit, int] = {}
        self.entries: list[tuple[Integers, Integers, Floats]] = []

    def solve(self) -> LinearOptimum | None:
        self._limits()
        self._shared()
        self._budget()
        limits = PlanLimits(self.network, self.demand.budget)
        capacities = np.array([0.0 if row == BUDGET else float(limits.capacity(row)) for row in self.rows])
        bounds, balanced = self._matrix(len(self.rows)), self._balances()
        balances = self._matrix(balanced)
        costs = np.zeros(self.theta + 1)
        costs[self.theta] = -1
        while True:
            found = linprog(costs, bounds, capacities / self.rate, balances, np.zeros(balanced), method="highs")
            if found.status:
                # It has a solution, so HiGHS lacked memory, most probably.
                raise TooMuch(f"HiGHS could not compute the plan: {found.message}", REMEDY)
            theta = float(found.x[self.theta])
            if theta < LEAST:
                return None
            if theta > NEAR:
                return self._rates(found.x, -found.ineqlin.marginals)
            # The plan is much slower than max-flow's bound: solve again, scaled so that rates are about one.
            self.rate *= theta

    def _add(self, rows: Integers, columns: Integers, values: Floats) -> None:
        self.entries.append((rows, columns, values))

    def _row(self, limit: Limit) -> int:
        if limit not in self.numbers:
            self.numbers[limit] = len(self.rows)
            self.rows.append(limit)
        return self.numbers[limit]

    def _limits(self) -> None:
        for sink, graph in self.graphs.items():
            first, m = self.first[sink], len(graph.links)
            self._add(graph.links, first + np.arange(m), np.ones(m))
            rows = np.array([self._row(limit) for limit, _ in graph.limits.values()], np.int64)
            taken = np.array([1 / float(price) for _, price in graph.limits.values()])
            self._add(rows, first + np.fromiter(graph.limits, np.int64, len(rows)), taken)

    def _weighted(self, row: int, weights: Floats) -> None:
        """Add a limit on the weighted sum over links."""
        for sink, graph in self.graphs.items():
            columns = np.flatnonzero(weights[graph.links])
            self._add(np.full(len(columns), row), self.first[sink] + columns, weights[graph.links[columns]])

    def _shared(self) -> None:
        places = {key: place for place, key in enumerate(self.network.links)} if self.network.shared else {}
        for each in self.network.shared:
            weights = np.zeros(len(places))
            for key, weight in each.weights.items():
                weights[places[key]] = weight
            self._weighted(self._row(Limit("shared", each.name)), weights)

    def _budget(self) -> None:
        if self.demand.budget is None:
            return
        prices = np.array([link.price for link in self.network.links.values()])
        self._weighted(self._row(BUDGET), prices / self._dearest())
        share = self.demand.budget / self.total / self._dearest()
        self._add(np.array([self._row(BUDGET)]), np.array([self.theta]), np.array([-share]))

    def _dearest(self) -> float:
        return max((link.price for link in self.network.links.values()), default=0.0) or 1.0

    def _balances(self) -> int:
        """Add the equalities, and return their number."""
        self.entries, row = [], 0
        for sink, graph in self.graphs.items():
            first = self.first[sink]
            for ends, sign in ((graph.heads, 1.0), (graph.tails, -1.0)):
                inner = np.flatnonzero((ends != graph.source) & (ends != graph.sink))
                self._add(row + ends[inner].astype(np.int64), first + inner, np.full(len(inner), sign))
            row += graph.vertices
            for arc in np.flatnonzero(graph.tails == graph.source).tolist():
                share = graph.offsets[arc] * graph.unit / 2 / self.total
                self._add(np.array([row, row]), np.array([first + arc, self.theta]), np.array([1.0, -share]))
                row += 1
        return row

    def _matrix(self, rows: int) -> csr_array:
        parts = [np.concatenate(part) for part in zip(*self.entries, strict=True)]
        return csr_array((parts[2], (parts[0], parts[1])), (rows, self.theta + 1))

    def _rates(self, found: Floats, duals: Floats) -> LinearOptimum:
        scale = self.total / found[self.theta]
        prices = {
            row: Fraction(price) / (Fraction(self._dearest()) if row == BUDGET else 1)
            for row, price in zip(self.rows, duals.tolist(), strict=True)
            if price > LEAST
        }
        amounts = {
            sink: found[self.first[sink] : self.first[sink] + len(graph.tails)] * scale
            for sink, graph in self.graphs.items()
        }
        return LinearOptimum(self.graphs, amounts, prices, Fraction(scale / self.rate))
