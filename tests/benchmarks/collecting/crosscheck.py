"""A few points of Cheng's experiment with TCP in ns-3, compared with the same points in the fluid model.

Files have a twentieth of their bytes, because ns-3 needs a second to simulate a few seconds. Both use plans from rates
measured in the fluid model.
"""

from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from math import inf
from multiprocessing import get_context
from typing import NamedTuple

from coalloc.collect.methods import make
from coalloc.collect.simulation import simulate
from coalloc.planner import Demand
from tests.benchmarks.collecting.cheng import METHODS
from tests.benchmarks.collecting.results import table
from tests.benchmarks.collecting.uploads import measured, upload_scenario, weather

__all__ = ["Point", "compared", "points", "table_of"]

PART = 20
LOADS = (0, 24, 120)
SHOWN = ("all-at-once", "path-sync-95", "adaptive")
SEED = 1
PROBES = 3
LIMIT = 5000.0


class Point(NamedTuple):
    """The makespans of one method under one load, in seconds: in the fluid model and in ns-3."""

    method: str
    load: int
    fluid: float
    packets: float


def points() -> list[Point]:
    """Return all points. Each runs in its own process, because ns-3 allows one network per process."""
    cases = [(method, load) for load in LOADS for method in SHOWN]
    with ProcessPoolExecutor(2, get_context("spawn"), max_tasks_per_child=1) as pool:
        return list(pool.map(compared, *zip(*cases, strict=True)))


def compared(method: str, load: int, part: int = PART) -> Point:
    """Simulate a collect job in the fluid model and in ns-3. Call it once per process.

    :param part: divisor of the files' sizes
    """
    from tests.benchmarks.collecting.packets import Packets

    here = upload_scenario(SEED, load)
    demand = Demand(tuple(replace(file, size=file.size // part) for file in here.demand.files))
    name, parameters = METHODS[method]
    known = measured(here, PROBES)
    fluid, packets = (make(name, known, demand, seed=SEED, **parameters) for _ in range(2))
    smooth = simulate(fluid, here.underlay, weather(here, 0), fast=True)
    rough = simulate(packets, here.underlay, limit=LIMIT, carrier=Packets(here, SEED))
    return Point(method, load, smooth.seconds, rough.seconds if rough.outcome == "done" else inf)


def table_of(found: Sequence[Point]) -> str:
    """Return a table of the points, with the makespan of direct transfers divided by that of each method."""
    direct = {point.load: point for point in found if point.method == "all-at-once"}
    rows = [
        [
            str(point.load),
            point.method,
            f"{point.fluid:.0f}",
            f"{point.packets:.0f}",
            f"{point.packets / point.fluid:.2f}",
            f"{direct[point.load].fluid / point.fluid:.2f}",
            f"{direct[point.load].packets / point.packets:.2f}",
        ]
        for point in found
    ]
    head = ["flows", "method", "fluid, s", "ns-3, s", "ns-3 / fluid", "direct / it, fluid", "direct / it, ns-3"]
    return table(head, rows)
