"""Conversion of a flow over arcs to paths of whole bytes."""

from collections import Counter, defaultdict, deque
from collections.abc import Hashable, Iterable, Iterator, Mapping
from itertools import groupby
from typing import TypeVar

import numpy as np

from coalloc.planner.capacity_graph import CapacityGraph
from coalloc.planner.network import File
from coalloc.planner.results import PlannedPath
from coalloc.planner.solvers.maxflow import Backend, MaximumFlow

__all__ = ["Amounts", "dealt", "leaving_arcs", "paths_of", "shortest", "take", "without_cycles"]

Amounts = dict[int, int]
Key = TypeVar("Key", bound=Hashable)


def without_cycles(graph: CapacityGraph, amounts: Mapping[int, int]) -> Amounts:
    """Return the flow without cycles, which solvers may leave in it, and which would only load links."""
    left = dict(amounts)
    leaving = leaving_arcs(graph, left)
    done: set[int] = set()
    for start in list(leaving):
        _search(graph, start, left, leaving, done)
    return {arc: amount for arc, amount in left.items() if amount}


def leaving_arcs(graph: CapacityGraph, amounts: Iterable[int]) -> defaultdict[int, list[int]]:
    """Return the arcs by the vertex at which they begin."""
    leaving: defaultdict[int, list[int]] = defaultdict(list)
    for arc in amounts:
        leaving[int(graph.tails[arc])].append(arc)
    return leaving


def _search(graph: CapacityGraph, start: int, left: Amounts, leaving: Mapping[int, list[int]], done: set[int]) -> None:
    """Search depth first from a vertex; subtract from each cycle its smallest amount."""
    path: list[int] = []
    at = {start: 0}
    while True:
        here = int(graph.heads[path[-1]]) if path else start
        arcs = leaving.get(here, [])
        while arcs and (not left[arcs[-1]] or int(graph.heads[arcs[-1]]) in done):
            arcs.pop()
        if arcs:
            path.append(arcs[-1])
            head = int(graph.heads[arcs[-1]])
            if head in at:
                _cancel(left, path[at[head] :])
                for arc in path[at[head] : -1]:
                    del at[int(graph.heads[arc])]
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
    left = _whole(graph, flow, backend)
    leaving = leaving_arcs(graph, left)
    paths: defaultdict[frozenset[str], list[tuple[tuple[str, ...], int]]] = defaultdict(list)
    for arc, (holders, _) in graph.groups.items():
        while left.get(arc):
            path, amount = take(graph, arc, left, leaving)
            paths[holders].append((_hosts(graph, path), amount))
    for file, parts in dealt(files, paths):
        yield from (PlannedPath(file.name, hosts, size) for hosts, size in parts.items())


def take(graph: CapacityGraph, arc: int, left: Amounts, leaving: Mapping[int, list[int]]) -> tuple[list[int], int]:
    """Follow the arcs with the largest flow to the sink; return the path, and the amount, which is removed from `left`.

    The amount is the smallest flow of an arc on the path; 0 if the path ends before the sink.
    """
    path = [arc]
    while (here := int(graph.heads[path[-1]])) != graph.sink:
        if not leaving.get(here):
            return path, 0
        path.append(max(leaving[here], key=left.__getitem__))
    most = min(left[each] for each in path)
    for each in path:
        left[each] -= most
    return path, most


def shortest(graph: CapacityGraph, starts: Iterable[int]) -> list[int]:
    """Return a path with the fewest arcs from one of these arcs to the sink, regardless of capacities."""
    leaving = leaving_arcs(graph, (arc for arc in range(len(graph.tails)) if graph.slopes[arc] or arc in graph.offsets))
    paths, seen = deque([arc] for arc in starts), set[int]()
    while paths:
        path = paths.popleft()
        here = int(graph.heads[path[-1]])
        if here == graph.sink:
            return path
        if here not in seen:
            seen.add(here)
            paths.extend([*path, arc] for arc in leaving[here])
    raise ValueError("no path leads to the sink")


def _hosts(graph: CapacityGraph, path: list[int]) -> tuple[str, ...]:
    owners = graph.arrays.owners
    passed = [owners[vertex] for vertex in graph.heads[path].tolist() if vertex < len(owners)]
    return tuple(graph.arrays.hosts[host].name for host, _ in groupby(passed))


def dealt(
    files: Iterable[File], shares: Mapping[frozenset[str], list[tuple[Key, int]]], parts: int = 1
) -> Iterator[tuple[File, dict[Key, int]]]:
    """Divide the shares of files with the same holders among these files; yield each file with its shares.

    :param parts: number of parts per byte in `shares`
    """
    rest = {holders: list(reversed(some)) for holders, some in shares.items()}
    for file in files:
        got: Counter[Key] = Counter()
        stock, wanted = rest[frozenset(file.holders)], file.size * parts
        while wanted:
            key, there = stock.pop()
            taken = min(there, wanted)
            got[key] += taken
            wanted -= taken
            if taken < there:
                stock.append((key, there - taken))
        yield file, +got


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
    for arc, amount in floors.items():
        excess[int(graph.heads[arc])] += amount
        excess[int(graph.tails[arc])] -= amount
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
