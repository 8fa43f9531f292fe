"""Conversion of a flow over arcs to paths of whole bytes."""

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import TypeVar

import numpy as np

from coalloc.planner.capacity_graph import CapacityGraph
from coalloc.planner.network import File
from coalloc.planner.results import PlannedPath
from coalloc.planner.solvers.maxflow import Backend, MaximumFlow

__all__ = ["Amounts", "FlowLeft", "dealt", "paths_of", "without_cycles"]

Amounts = dict[int, int]
Key = TypeVar("Key", bound=Hashable)


class FlowLeft:
    """A flow that is removed path by path.

    :param amounts: amount of each arc in use, which is reduced
    """

    def __init__(self, graph: CapacityGraph, amounts: Amounts) -> None:
        self.amounts, self._sink = amounts, graph.sink
        arcs = np.fromiter(amounts, np.int64, len(amounts))
        self.heads: dict[int, int] = dict(zip(amounts, graph.heads.take(arcs).tolist(), strict=True))
        self.leaving: defaultdict[int, list[int]] = defaultdict(list)
        """The arcs by the vertex at which they begin."""
        for arc, tail in zip(amounts, graph.tails.take(arcs).tolist(), strict=True):
            self.leaving[tail].append(arc)

    def take(self, arc: int) -> tuple[list[int], int]:
        """Follow the arcs with the largest flow to the sink; return the path, and the amount, which is removed.

        The amount is the smallest flow of an arc on the path; 0 if the path ends before the sink.
        """
        amounts, heads, leaving = self.amounts, self.heads, self.leaving
        path = [arc]
        while (here := heads[path[-1]]) != self._sink:
            onward = leaving.get(here)
            if not onward:
                return path, 0
            path.append(max(onward, key=amounts.__getitem__) if len(onward) > 1 else onward[0])
        most = min(map(amounts.__getitem__, path))
        for each in path:
            amounts[each] -= most
        return path, most


def without_cycles(graph: CapacityGraph, amounts: Mapping[int, int]) -> Amounts:
    """Return the flow without cycles, which solvers may leave in it, and which would only load links."""
    flow = FlowLeft(graph, dict(amounts))
    done: set[int] = set()
    for start in list(flow.leaving):
        if start not in done:
            _search(flow, start, done)
    return {arc: amount for arc, amount in flow.amounts.items() if amount}


def _search(flow: FlowLeft, start: int, done: set[int]) -> None:
    """Search depth first from a vertex; subtract from each cycle its smallest amount."""
    left, heads = flow.amounts, flow.heads
    path: list[int] = []
    at = {start: 0}
    while True:
        here = heads[path[-1]] if path else start
        arcs = flow.leaving.get(here, [])
        while arcs and (not left[arcs[-1]] or heads[arcs[-1]] in done):
            arcs.pop()
        if arcs:
            path.append(arcs[-1])
            head = heads[arcs[-1]]
            if head in at:
                _cancel(left, path[at[head] :])
                for arc in path[at[head] : -1]:
                    del at[heads[arc]]
                del path[at[head] :]
            else:
                at[head] = len(path)
        else:
            done.add(here)
            del at[here]
            if not path:
                return
            path.pop()


def _cancel(left: Amounts, circle: list[int]) -> None:
    least = min(left[arc] for arc in circle)
    for arc in circle:
        left[arc] -= least


def paths_of(graph: CapacityGraph, flow: MaximumFlow, files: Iterable[File], backend: Backend) -> Iterator[PlannedPath]:
    """Yield paths in whole bytes whose sum differs from a flow without cycles by less than a byte on each arc."""
    left = FlowLeft(graph, _whole(graph, flow, backend))
    paths: defaultdict[frozenset[str], list[tuple[tuple[str, ...], int]]] = defaultdict(list)
    names = [graph.arrays.hosts[host].name for host in graph.arrays.owners]
    for arc, (holders, _) in graph.groups.items():
        while left.amounts.get(arc):
            path, amount = left.take(arc)
            paths[holders].append((_hosts(names, map(left.heads.__getitem__, path)), amount))
    for file, parts in dealt(files, paths):
        yield from (PlannedPath(file.name, hosts, size) for hosts, size in parts.items())


def _hosts(names: Sequence[str], vertices: Iterable[int]) -> tuple[str, ...]:
    """Return the hosts on a path, by the names of the hosts of vertices; vertices of files come last."""
    passed = [names[vertex] for vertex in vertices if vertex < len(names)]
    return tuple(name for name, _ in groupby(passed))


def dealt(
    files: Iterable[File], shares: Mapping[frozenset[str], list[tuple[Key, int]]], parts: int = 1
) -> Iterator[tuple[File, dict[Key, int]]]:
    """Divide the shares of files with the same holders among these files; yield each file with its shares.

    :param parts: number of parts per byte in `shares`
    """
    rest = {holders: list(reversed(some)) for holders, some in shares.items()}
    for file in files:
        got: dict[Key, int] = {}
        stock, wanted = rest[frozenset(file.holders)], file.size * parts
        while wanted:
            key, there = stock.pop()
            taken = min(there, wanted)
            got[key] = got.get(key, 0) + taken
            wanted -= taken
            if taken < there:
                stock.append((key, there - taken))
        yield file, {key: size for key, size in got.items() if size}


def _whole(graph: CapacityGraph, flow: MaximumFlow, backend: Backend) -> Amounts:
    """Return the flow with the amount of each arc rounded down or up to whole bytes.

    All amounts are rounded down first. Then the excess at each vertex must leave by arcs that lost a part of a byte,
    at most one byte by each: a max-flow with capacities of one. It exists, as the lost parts are a flow that carries
    the whole excess, and integral capacities have an integral max-flow. The totals at source and sink are whole.
    """
    parts = 2 * flow.scale
    floors = {arc: amount * graph.unit // parts for arc, amount in flow.amounts.items()}
    loose = [arc for arc, amount in flow.amounts.items() if amount * graph.unit % parts]
    if not loose:
        return floors
    excess: Counter[int] = Counter({graph.source: graph.total * graph.unit // 2})
    excess[graph.sink] = -excess[graph.source]
    arcs = np.fromiter(floors, np.int64, len(floors))
    ends = zip(graph.tails.take(arcs).tolist(), graph.heads.take(arcs).tolist(), floors.values(), strict=True)
    for tail, head, amount in ends:
        excess[head] += amount
        excess[tail] -= amount
    for arc in _rounded_up(graph, loose, +excess, -excess, backend):
        floors[arc] += 1
    return floors


def _rounded_up(
    graph: CapacityGraph, loose: list[int], over: Mapping[int, int], under: Mapping[int, int], backend: Backend
) -> list[int]:
    source, sink = graph.vertices, graph.vertices + 1
    tails = [*graph.tails[loose].tolist(), *(source for _ in over), *under]
    heads = [*graph.heads[loose].tolist(), *over, *(sink for _ in under)]
    capacities = [*(1 for _ in loose), *over.values(), *under.values()]
    sent, _ = backend.solve(
        graph.vertices + 2,
        np.array(tails, np.int32),
        np.array(heads, np.int32),
        np.array(capacities, np.int64),
        source,
        sink,
    )
    return [arc for arc, up in zip(loose, sent.tolist(), strict=False) if up]
