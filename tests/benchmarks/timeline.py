"""Speed of timetable planning: `python -m tests.benchmarks.timeline`.

Networks are random: capacities are lognormal, the links from some sources to the destination are congested, and the
destination's downlink is slower than all sources together. A row shows the slowest of several networks; each time is
the best of several measurements. The column `whole` is the time from network and demand to the flow, without paths;
`solver` is the time of the min-cost flow alone.
"""

import time
from collections.abc import Callable, Iterator
from fractions import Fraction

import numpy as np

from coalloc.planner.network import Demand, File, Host, Isp, Link, LinkKey, Network
from coalloc.planner.solvers.maxflow import ORTOOLS, SCIPY, Backend
from coalloc.planner.timeline.check import faults
from coalloc.planner.timeline.flows import cheapest
from coalloc.planner.timeline.steps import Units
from coalloc.planner.timeline.timetable import timeline

__all__ = ["made", "rows"]

SIZES = {(149, 8): 60, (149, 20): None, (496, 8): 200, (992, 8): 450}
"""The target in milliseconds with OR-tools, by number of steps and of hosts; with SciPy it is five times as long."""
UNITS = Units(Fraction(8), 64 * 1024)
"""The paper's step (seconds) and data unit (bytes)."""
SEEDS = range(5)


def made(steps: int, hosts: int, seed: int) -> tuple[Network, Demand]:
    """Return a random network, and a demand whose timetable has about this many steps."""
    chance = np.random.default_rng(seed)
    sources = [f"S{i}" for i in range(1, hosts)]
    rates = chance.lognormal(np.log(150_000), 0.6, (hosts, hosts))
    rates[:, -1] /= chance.choice((1, 8), hosts)
    links = [
        Link(LinkKey(source, sink), int(rates[i, j]))
        for i, source in enumerate(sources)
        for j, sink in enumerate([*sources, "D"])
        if source != sink
    ]
    down = int(rates[:-1, -1].sum() * 0.9)
    network = Network.of((*map(Host, sources), Host("D", (Isp("", None, down),))), tuple(links))
    weights = chance.uniform(25, 75, hosts - 1)
    total = down * float(UNITS.seconds) * steps
    for _ in range(8):
        sizes = (weights / weights.sum() * total).astype(int)
        demand = Demand(tuple(File(f"of {s}", int(n), (s,), ("D",)) for s, n in zip(sources, sizes, strict=True)))
        count = timeline(network, demand, UNITS).count
        total *= steps / count
        if count == steps:
            break
    return network, demand


def rows() -> Iterator[str]:
    """Yield the rows of the table."""
    yield "   T  b    arcs   with   whole  (wanted)  solver  ratio   paths  proof  check"
    for (steps, hosts), wanted in SIZES.items():
        collections = [made(steps, hosts, seed) for seed in SEEDS]
        for backend, times in ((ORTOOLS, 5), (SCIPY, 2)):
            yield max(_row(*each, wanted, backend, times) for each in collections)[1]


def _row(network: Network, demand: Demand, wanted: int | None, backend: Backend, times: int) -> tuple[float, str]:
    found = timeline(network, demand, UNITS, backend=backend)
    graph = found.expansion.graph
    whole = _least(lambda: timeline(network, demand, UNITS, backend=backend), times)
    solver = _least(lambda: cheapest(graph, backend), times)
    paths = _least(lambda: found.__dict__.pop("paths", None) or found.paths, 1)
    proof = _least(found.certify, 1)
    certificate = found.certify()
    check = _least(lambda: faults(certificate, network, demand, UNITS), 1)
    assert faults(certificate, network, demand, UNITS) == []
    limit = f"{wanted * (1 if backend is ORTOOLS else 5)} ms" if wanted else "-"
    return whole, (
        f"{found.count:4} {len(network.hosts):2} {len(graph.tails):7} {backend.name:>8} "
        f"{whole * 1e3:5.0f} ms {limit:>8} {solver * 1e3:5.0f} ms {whole / solver:5.2f} "
        f"{paths * 1e3:5.0f} {proof * 1e3:6.0f} {check * 1e3:6.0f} ms"
    )


def _least(work: Callable[[], object], times: int) -> float:
    def once() -> float:
        began = time.perf_counter()
        work()
        return time.perf_counter() - began

    return min(once() for _ in range(times))


if __name__ == "__main__":
    for row in rows():
        print(row, flush=True)
