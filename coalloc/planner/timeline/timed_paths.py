"""Division of a flow through G_T into paths with starting times (Cheng, IV, "Splitting the flow into paths").

Data are divided only at their origin, so a path carries the same bytes on all of its hops.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate, pairwise
from typing import NamedTuple

from coalloc.planner.network import LinkKey
from coalloc.planner.timeline.steps import OriginHost, Steps

__all__ = ["FilePart", "TimedPath", "timed_paths"]


class FilePart(NamedTuple):
    """Bytes [start, end) of a file."""

    file: str
    start: int
    end: int


class TimedPath(NamedTuple):
    """Parts of files, `units` of data, that go from host to host, one hop per step, the first hop in step `start`."""

    hosts: tuple[str, ...]
    start: int
    units: int
    parts: tuple[FilePart, ...]


Stop = tuple[int, int]
"""A host's number and a step."""
Copied = Mapping[tuple[str, OriginHost], int]


def timed_paths(
    steps: Steps,
    moved: Mapping[tuple[int, LinkKey], int],
    held: Mapping[tuple[OriginHost, int], int],
    copied: Copied,
) -> Iterator[TimedPath]:
    """Divide a flow into paths: start at the host with the smallest index, and follow the smallest next index.

    :param moved: units by step and link
    :param held: units by origin, and step in which they are sent
    :param copied: units by file with several origins, and origin
    """
    onward: defaultdict[Stop, Counter[Stop]] = defaultdict(Counter)
    for (step, key), units in moved.items():
        onward[steps.at(key.source), step][steps.at(key.sink), step + 1] += units
    hosts = steps.hosts
    for origin in sorted(steps.origins, key=lambda each: (steps.at(each.host), each.ready)):
        stock = list(_stock(steps, origin, copied))
        begins = Counter({step: units for (each, step), units in held.items() if each == origin})
        begins[origin.ready] += _sent(steps, origin, copied) - begins.total()
        waits = sorted(step for step, units in begins.items() if units)
        while waits:
            stops = _follow(steps.at(origin.host), waits, onward)
            hops = list(pairwise(stops))
            units = min(begins[stops[0][1]], *(onward[here][there] for here, there in hops))
            begins[stops[0][1]] -= units
            if not begins[stops[0][1]]:
                waits.remove(stops[0][1])
            for here, there in hops:
                _take(onward[here], there, units)
            parts = tuple(_parts(stock, units * steps.units.bytes))
            yield TimedPath(tuple(hosts[host] for host, _ in stops), stops[0][1], units, parts)


def _follow(host: int, waits: Sequence[int], onward: Mapping[Stop, Mapping[Stop, int]]) -> list[Stop]:
    """Return the stops of the next path.

    Waiting counts as a hop to the origin itself, so it is ordered by the host's index, too; earlier steps come first.
    """
    wait = waits[0]
    if not wait and len(waits) > 1 and min(onward[host, 0])[0] > host:
        wait = waits[1]
    stops = [(host, wait)]
    while onward.get(stops[-1]):
        stops.append(min(onward[stops[-1]]))
    return stops


def _take(left: Counter[Stop], there: Stop, units: int) -> None:
    left[there] -= units
    if not left[there]:
        del left[there]


def _sent(steps: Steps, origin: OriginHost, copied: Copied) -> int:
    return steps.origins[origin] + sum(copied.get((each.file.name, origin), 0) for each in steps.copies)


def _stock(steps: Steps, origin: OriginHost, copied: Copied) -> Iterator[FilePart]:
    """Yield the bytes that an origin sends: whole files that only it holds, and its share of other files."""
    for file in steps.demand.files:
        if len(file.holders) == 1 and steps.origin(file, file.holders[0]) == origin and file.size:
            yield FilePart(file.name, 0, file.size)
    for each in steps.copies:
        shares = accumulate(copied.get((each.file.name, other), 0) * steps.units.bytes for other in each.origins)
        ends = [min(share, each.file.size) for share in shares]
        for other, (start, end) in zip(each.origins, pairwise([0, *ends]), strict=True):
            if other == origin and start < end:
                yield FilePart(each.file.name, start, end)


def _parts(stock: list[FilePart], size: int) -> Iterator[FilePart]:
    """Take and yield the next `size` bytes of the stock, or all if it holds fewer: the last unit may be shorter."""
    while size and stock:
        file, start, end = stock.pop(0)
        until = min(end, start + size)
        yield FilePart(file, start, until)
        size -= until - start
        if until < end:
            stock.insert(0, FilePart(file, until, end))
