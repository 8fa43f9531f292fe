"""The bytes that pass each link over time, as bars. Pure."""

from collections import Counter
from itertools import pairwise
from typing import NamedTuple

from coalloc.collect.simulation import SimulationRecord
from coalloc.planner.results import TransferPlan

__all__ = ["Bar", "bars", "hops"]


class Bar(NamedTuple):
    """Bytes of a file that go from one host to another between two times, in seconds from the beginning."""

    source: str
    sink: str
    file: str
    start: float
    end: float
    bytes: int


def bars(plan: TransferPlan) -> list[Bar]:
    """Return the bars of a plan, each over the whole makespan: all flows run at once, also those of relays."""
    sums: Counter[tuple[str, str, str]] = Counter()
    for path in plan.paths:
        for source, sink in pairwise(path.hosts):
            sums[source, sink, path.file] += path.bytes
    return [Bar(*key, 0.0, float(plan.makespan), count) for key, count in sums.items()]


def hops(record: SimulationRecord) -> list[Bar]:
    """Return the bars of a simulated collect job, including cancelled and failed hops."""
    return [
        Bar(hop.send.source, hop.send.sink, hop.send.piece.file, hop.began, hop.ended, hop.send.piece.size)
        for hop in record.hops
    ]
