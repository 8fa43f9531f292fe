"""Checks whether all data can arrive in time; if not, they find the limits in the way, and the number of late bytes."""

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from math import ceil, floor

from coalloc.errors import UsageError
from coalloc.planner.demands import flow_question, is_flow
from coalloc.planner.limits import duration, named
from coalloc.planner.network import Demand, File, Network
from coalloc.planner.results import Limit
from coalloc.planner.solvers.libraries import needed

__all__ = ["DeadlineRefusal", "due", "in_time", "refusal"]


@dataclass(frozen=True)
class DeadlineRefusal:
    """The reason why not all data can arrive in time.

    :param short: minimum number of bytes that would be late
    :param prices: the limits of the cut, with their prices
    :param reason: the reason as a sentence
    """

    short: int
    prices: Mapping[Limit, Fraction]
    reason: str


def refusal(network: Network, demand: Demand, seconds: float | Fraction) -> DeadlineRefusal | None:
    """Return the reason why not all data can arrive within these seconds, or None if they can; takes one max-flow.

    :param demand: files with one common destination
    :raises UsageError: in the same cases as `least_makespan`
    """
    with needed():
        from coalloc.planner.capacity_graph import Arrays, graph_of
        from coalloc.planner.from_graph import prices_of
        from coalloc.planner.solvers.maxflow import fastest, fill
    sink, files = flow_question(network, demand)
    if not files:
        return None
    graph = graph_of(Arrays(network), files, sink)
    time = _in_63_bits(max(Fraction(0), Fraction(seconds)) / graph.second, graph.total)
    flow = fill(graph, time, fastest(), most=True)
    missing = graph.total * flow.scale - flow.value
    if not missing:
        return None
    short = ceil(Fraction(missing * graph.unit, 2 * flow.scale))
    prices = prices_of(graph, flow.side)
    what = f"pass {named(network, prices)}" if prices else f"reach {sink} at all"
    return DeadlineRefusal(short, prices, f"{short} bytes cannot {what} in {duration(Fraction(seconds))}")


def due(demand: Demand) -> float | None:
    """Return the earliest deadline of files that have to be sent, in seconds, or None."""
    return min((file.deadline for file in _moved(demand) if file.deadline is not None), default=None)


def _moved(demand: Demand) -> list[File]:
    return [file for file in demand.files if file.size and set(file.destinations) - set(file.holders)]


def in_time(network: Network, demand: Demand, seconds: Fraction) -> None:
    """Check that a plan that takes these seconds for all files meets the earliest deadline.

    :raises UsageError: when a file has to arrive before the plan ends
    """
    earliest = due(demand)
    if earliest is None or earliest >= seconds:
        return
    urgent = Demand(tuple(file for file in _moved(demand) if file.deadline == earliest))
    names = ", ".join(file.name for file in urgent.files)
    why = refusal(network, urgent, earliest) if is_flow(network, urgent) else None
    if why is not None:
        raise UsageError(f"{names} cannot arrive in time: {why.reason}", "allow more time")
    together = f"takes {duration(seconds)} together with all others, not {duration(Fraction(earliest))}"
    raise UsageError(f"{names} {together}", "send urgent files first, in a separate plan")


def _in_63_bits(time: Fraction, total: int) -> Fraction:
    """Return the time, shortened by at most 2^-40 of it, so that its numerator has 63 bits.

    A shorter time is safe, as it lets fewer bytes arrive. Times above `total` become `total`: by then, each arc whose
    capacity grows with time can carry all bytes, since it grows by at least 1 per unit of time.
    """
    if time >= total:
        return Fraction(total)
    if time.numerator < 2**63:
        return time
    parts = 2 ** max(0, 62 - floor(time).bit_length())
    return Fraction(floor(time * parts), parts)
