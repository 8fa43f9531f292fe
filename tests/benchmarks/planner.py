"""Speed of the flow planner: `python -m tests.benchmarks.planner`.

Measures the CPU time to find the least time T* and its flow: building the graph from a network in arrays, and all
max-flows. Three other times are measured separately: that of paths of whole bytes, that of a whole plan as users get
it, with the plan without relays, paths and certificate, and that of making the network from objects, which checks its
links and puts them into columns, once for all its plans. The reference is one max-flow by
OR-tools on the same graph, with the capacities at T* rounded to 64 bits.

Networks are random, with fixed seeds. In `wide` ones, link rates are lognormal, and the access links of hosts are the
bottleneck. In `narrow` ones, the links to the sink are the bottleneck, so that most sources need relays.
"""

import statistics
import time
from collections.abc import Callable
from importlib.util import find_spec
from typing import NamedTuple

import numpy as np

from coalloc.planner.capacity_graph import Arrays, CapacityGraph, graph_of
from coalloc.planner.network import Demand, File, Host, Isp, Link, LinkKey, Network
from coalloc.planner.paths import paths_of, without_cycles
from coalloc.planner.solvers.maxflow import ORTOOLS, SCIPY, Backend
from coalloc.planner.solvers.newton import least_time
from coalloc.planner.static.makespan import solve

TIMES = 7
SLACK = 5
"""Factor by which SciPy may be slower than the target for OR-tools."""


class Case(NamedTuple):
    """A size of networks.

    :param hosts: number of hosts
    :param peers: number of other hosts to which each has links besides the sink; None for all
    :param wanted: target in milliseconds, with OR-tools
    """

    hosts: int
    peers: int | None
    wanted: float

    def __str__(self) -> str:
        return f"{self.hosts} hosts, {'complete' if self.peers is None else f'{self.peers} peers'}"


CASES = (Case(100, None, 3), Case(500, None, 40), Case(1000, None, 250), Case(1000, 10, 20))


def drawn(case: Case, narrow: bool, seed: int) -> tuple[Network, list[File]]:
    """Return a random network, whose sink is host 0, and one file at each other host."""
    chance, n = np.random.default_rng(seed), case.hosts
    access = chance.lognormal(18, 1, (n, 2)).astype(np.int64)
    hosts = tuple(Host(f"h{i}", (Isp("", int(up), int(down)),)) for i, (up, down) in enumerate(access))
    rates = chance.lognormal(16, 1.5, (n, n)).astype(np.int64) + 1
    if narrow:
        rates[:, 0] = chance.lognormal(10, 3, n).astype(np.int64) + 1
    links = []
    for i in range(n):
        others = range(n) if case.peers is None else sorted({0, *chance.choice(n, case.peers, replace=False).tolist()})
        links += [Link(LinkKey(f"h{i}", f"h{j}"), int(rates[i, j])) for j in others if i != j]
    sizes = chance.lognormal(23, 1, n).astype(np.int64)
    return Network.of(hosts, tuple(links)), [File(f"f{i}", int(sizes[i]), (f"h{i}",), ("h0",)) for i in range(1, n)]


def bare(graph: CapacityGraph, seconds: float) -> float:
    """Return the milliseconds of one max-flow by OR-tools, with the capacities in this number of seconds."""
    from ortools.graph.python.max_flow import SimpleMaxFlow

    scale = 2.0**60 / max(graph.total, graph.slopes.max() * seconds)
    capacities = graph.slopes * seconds * scale
    capacities[list(graph.offsets)] += np.array(list(graph.offsets.values())) * scale

    def once() -> None:
        solver = SimpleMaxFlow()
        solver.add_arcs_with_capacity(graph.tails, graph.heads, capacities.astype(np.int64))
        solver.solve(graph.source, graph.sink)

    return statistics.median(_milliseconds(once) for _ in range(TIMES))


class Times(NamedTuple):
    """The times for one network in milliseconds: T* with its flow, one max-flow, the whole plan, paths, the network."""

    whole: float
    bare: float
    plan: float
    paths: float
    network: float


def times(case: Case, narrow: bool, backend: Backend, seed: int) -> Times:
    """Measure one network; `whole`, `plan` and `network` are the best of three runs."""
    network, files = drawn(case, narrow, seed)
    planned = min(_milliseconds(lambda: solve(network, Demand(tuple(files)), backend)) for _ in range(3))
    arrays = Arrays(network)
    whole = min(_milliseconds(lambda: least_time(graph_of(arrays, files, "h0"), backend)) for _ in range(3))
    graph = graph_of(arrays, files, "h0")
    found, flow, _ = least_time(graph, backend)
    flow.amounts = without_cycles(graph, flow.amounts)
    return Times(
        whole,
        bare(graph, float(found)) if find_spec("ortools") else float("nan"),
        planned,
        _milliseconds(lambda: list(paths_of(graph, flow, files, backend))),
        min(_milliseconds(lambda: Network(network.hosts, network.links)) for _ in range(3)),
    )


def line(case: Case, narrow: bool, backend: Backend) -> str:
    """Measure `TIMES` networks of a case; return a line of the table."""
    found = [times(case, narrow, backend, seed) for seed in range(TIMES)]
    whole, reference, planned, paths, made = (statistics.median(column) for column in zip(*found, strict=True))
    least, most = min(each.whole for each in found), max(each.whole for each in found)
    wanted = case.wanted * (1 if backend is ORTOOLS else SLACK)
    name = f"{case!s:<22}{'narrow' if narrow else 'wide':<8}{backend.name:<9}"
    numbers = (whole, least, most, wanted, reference, whole / reference, planned, paths, made)
    return name + "".join(f"{number:9.1f}" for number in numbers)


def _milliseconds(work: Callable[[], object]) -> float:
    # CPU time of this process, so that other load on the machine does not count.
    began = time.process_time()
    work()
    return (time.process_time() - began) * 1e3


def main() -> None:
    """Print the table."""
    print(f"T* and its flow, ms of CPU time; median, minimum and maximum of {TIMES} networks")
    titles = ("T*", "least", "most", "wanted", "bare", "ratio", "plan", "paths", "network")
    print(" " * 39 + "".join(f"{title:>9}" for title in titles))
    for case in CASES:
        for narrow in (False, True):
            for backend in (ORTOOLS, SCIPY) if find_spec("ortools") else (SCIPY,):
                print(line(case, narrow, backend), flush=True)


if __name__ == "__main__":
    main()
