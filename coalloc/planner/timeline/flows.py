"""Exact flows through graphs of arrays: a cut that is too small, or the cheapest flow that moves all units.

OR-tools finds them, or SciPy, whose linear programs (HiGHS) use floats: their results are rounded, and checked in whole
numbers before use.
"""

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linprog
from scipy.sparse import csr_array

from coalloc.errors import UsageError
from coalloc.planner.solvers.maxflow import ORTOOLS, Backend
from coalloc.planner.timeline.expansion import ExpansionGraph, Ints

__all__ = ["cheapest", "cut", "prices"]


def cut(graph: ExpansionGraph, backend: Backend) -> NDArray[np.bool_] | None:
    """Return the nodes on the source's side of a minimum cut if the graph cannot move all units; None if it can."""
    if graph.total >= 2**backend.bits:
        raise _too_many()
    size = len(graph.supplies)
    gives, wants = np.flatnonzero(graph.supplies > 0), np.flatnonzero(graph.supplies < 0)
    tails = np.concatenate((graph.tails, np.full(len(gives), size), wants))
    heads = np.concatenate((graph.heads, gives, np.full(len(wants), size + 1)))
    capacities = np.concatenate((graph.capacities, np.abs(graph.supplies[gives]), np.abs(graph.supplies[wants])))
    _, side = backend.solve(size + 2, tails.astype(np.int32), heads.astype(np.int32), capacities, size, size + 1)
    through = int(capacities[side[tails] & ~side[heads]].sum())
    return None if through == graph.total else side[:size]


def cheapest(graph: ExpansionGraph, backend: Backend) -> Ints:
    """Return the flow on each arc that moves all units at the least cost; the graph must be able to move them."""
    flow = _cheapest_by_ortools(graph) if backend is ORTOOLS else _cheapest_by_scipy(graph)
    left = graph.supplies.copy()
    np.subtract.at(left, graph.tails, flow)
    np.add.at(left, graph.heads, flow)
    if left.any() or (flow < 0).any() or (flow > graph.capacities).any():
        raise _too_many()
    return flow


def prices(graph: ExpansionGraph, flow: Ints) -> Ints:
    """Return a price for each node; together they prove that the flow is the cheapest.

    An arc with spare capacity never leads to a node with a higher price than the tail's price plus the arc's cost, and
    an arc in use never to a lower one: so no other flow costs less. Prices are distances in the residual graph, by the
    Bellman-Ford algorithm for all arcs at once, with one round per hop of the longest shortest path.
    """
    forth, back = flow < graph.capacities, flow > 0
    tails = np.concatenate((graph.tails[forth], graph.heads[back]))
    heads = np.concatenate((graph.heads[forth], graph.tails[back]))
    costs = np.concatenate((graph.costs[forth], -graph.costs[back]))
    order = np.argsort(heads, kind="stable")
    tails, heads, costs = tails[order], heads[order], costs[order]
    firsts = np.flatnonzero(np.r_[True, heads[1:] != heads[:-1]]) if len(heads) else np.empty(0, np.int64)
    found = np.zeros(len(graph.supplies), np.int64)
    ends = heads[firsts]
    for _ in range(len(found) + 1):
        nearer = np.minimum(found[ends], np.minimum.reduceat(found[tails] + costs, firsts)) if len(heads) else ends
        if (nearer == found[ends]).all():
            return found
        found[ends] = nearer
    raise AssertionError("the flow is not the cheapest: its residual graph has a cycle of negative cost")


def _too_many() -> UsageError:
    return UsageError("there are too many units of data", "choose larger units of data")


def _cheapest_by_ortools(graph: ExpansionGraph) -> Ints:
    from ortools.graph.python.min_cost_flow import SimpleMinCostFlow

    solver = SimpleMinCostFlow()
    arcs = solver.add_arcs_with_capacity_and_unit_cost(graph.tails, graph.heads, graph.capacities, graph.costs)
    solver.set_nodes_supplies(np.arange(len(graph.supplies)), graph.supplies)
    if solver.solve() != SimpleMinCostFlow.OPTIMAL:
        raise _too_many()
    return np.asarray(solver.flows(arcs), np.int64)


def _cheapest_by_scipy(graph: ExpansionGraph) -> Ints:
    count = len(graph.tails)
    signs = np.r_[np.ones(count), -np.ones(count)]
    rows = np.r_[graph.tails, graph.heads]
    balance = csr_array((signs, (rows, np.r_[:count, :count])), shape=(len(graph.supplies), count))
    bounds = np.stack((np.zeros(count), graph.capacities), axis=1)
    # The vertices of this polytope are integral, and dual simplex ends at a vertex. Presolve takes up to 40 times as
    # long.
    found = linprog(
        graph.costs,
        A_eq=balance,
        b_eq=graph.supplies,
        bounds=bounds,
        method="highs-ds",
        options={"presolve": False, "simplex_dual_edge_weight_strategy": "devex"},
    )
    if found.status != 0:
        raise _too_many()
    flow: Ints = np.rint(found.x).astype(np.int64)
    return flow
