"""When bytes go over which link, as bars. Pure."""

from collections import Counter
from itertools import pairwise
from typing import NamedTuple

from coalloc.planner.plan import TransferPlan

__all__ = ["Bar", "bars"]


class Bar(NamedTuple):
    """Bytes of a file that go from a host to another one between two moments, in seconds from the beginning."""

    source: str
    sink: str
    file: str
    start: float
    end: float
    bytes: int


def bars(plan: TransferPlan) -> list[Bar]:
    """Those of a plan whose flows all run side by side: a relay sends on what comes as it comes."""
    sums: Counter[tuple[str, str, str]] = Counter()
    for path in plan.paths:
        for source, sink in pairwise(path.hosts):
            sums[source, sink, path.file] += path.bytes
    return [Bar(*key, 0.0, float(plan.makespan), count) for key, count in sums.items()]
