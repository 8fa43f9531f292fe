"""A network and a demand as a graph in arrays, whose capacities grow with time: the input of max-flow.

A host x has two vertices: bytes arrive at the first, and leave from the second. An ISP adds a vertex for each direction
in which it has a limit, or for both if the host has several ISPs (x+ and x- in Confluence, 2.1). Relayed bytes go from
the first vertex to the second; the host's own files start at the second.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from copy import copy
from dataclasses import dataclass
from fractions import Fraction
from math import gcd

import numpy as np
from numpy.typing import NDArray

from coalloc.errors import UsageError
from coalloc.planner.network import MOST, File, Isp, LinkKey, Network
from coalloc.planner.results import Limit

__all__ = ["Arrays", "CapacityGraph", "crossing_arcs", "graph_of"]

Integers = NDArray[np.int64]
Mask = NDArray[np.bool_]
Vertices = NDArray[np.int32]
ONE = Fraction(1)


class Arrays:
    """A network in arrays, made once for many graphs.

    Bytes arrive at hosts at vertices 0 to n - 1, and leave from vertices n to 2 n - 1; all others are ISPs.

    :raises UsageError: when a capacity is 2^60 bytes per second or more
    """

    def __init__(self, network: Network) -> None:
        self.hosts = list(network.hosts.values())
        self.index = {host.name: i for i, host in enumerate(self.hosts)}
        self.owners = [*range(len(self.hosts)), *range(len(self.hosts))]
        self.access: list[tuple[int, int, int | None, Limit]] = []
        """Tail, head, bytes per second and limit of the arcs that join a host with its ISPs."""
        self.ports: dict[bool, list[list[int]]] = {out: [[] for _ in self.hosts] for out in (True, False)}
        """For each host, the vertices at which its outgoing links begin (True), and its incoming links end (False)."""
        self._outs, self._ins = dict(self._isps(out=True)), dict(self._isps(out=False))
        columns = network.columns
        self.tails = np.fromiter(self._outs, np.int32, len(self._outs)).take(columns.outs)
        self.heads = np.fromiter(self._ins, np.int32, len(self._ins)).take(columns.ins)
        self.capacities = np.asarray(columns.capacities)
        if max(int(self.capacities.max(initial=0)), *(each[2] or 0 for each in self.access), 0) >= MOST:
            raise UsageError("a capacity is too large for a plan", "give bytes per second below 2^60")

    def keys(self, links: Integers) -> list[LinkKey]:
        """Return the keys of some links, by their numbers."""
        outs, ins = (ends.take(links).tolist() for ends in (self.tails, self.heads))
        ends = ((self._outs[out], self._ins[into]) for out, into in zip(outs, ins, strict=True))
        return [LinkKey(source, sink, source_isp, sink_isp) for (source, source_isp), (sink, sink_isp) in ends]

    def links(self, sink: int, direct: bool) -> Integers:
        """Return the numbers of the links that can help to reach a host; `direct` if only from their source to it."""
        elsewhere = np.array(self.owners, np.int32) != sink
        wanted = elsewhere.take(self.tails)
        if direct:
            wanted &= ~elsewhere.take(self.heads)
        return np.flatnonzero(wanted)

    def with_capacities(self, capacities: Integers) -> "Arrays":
        """Return the same network with other capacities of its links."""
        changed = copy(self)
        changed.capacities = capacities
        return changed

    def _isps(self, out: bool) -> Iterator[tuple[int, tuple[str, str]]]:
        """Yield the vertex of each ISP, in the order of `Network.columns`.

        It is the host's own vertex if the host has one ISP without a limit.
        """
        for i, host in enumerate(self.hosts):
            at = i + out * len(self.hosts)
            for isp in host.isps or (Isp(),):
                limit = isp.up if out else isp.down
                vertex = at
                if limit is not None or len(host.isps) > 1:
                    vertex = len(self.owners)
                    self.owners.append(i)
                    ends = (at, vertex) if out else (vertex, at)
                    self.access.append((*ends, limit, Limit("up" if out else "down", (host.name, isp.name))))
                self.ports[out][i].append(vertex)
                yield vertex, (host.name, isp.name)


@dataclass(frozen=True)
class CapacityGraph:
    """A graph whose arc a carries at most max(0, slopes[a] x T + offsets[a]) in T seconds.

    No two arcs join the same two vertices, in either direction.

    :param slopes: units per `second`
    :param offsets: units, for the few arcs with an offset other than 0
    :param total: units to move from `source` to `sink`
    :param host: number of the host at the sink
    :param second: the unit of time, in seconds; common factors are cancelled, so that numbers are small
    :param unit: the unit of data, in half bytes
    :param links: for the first arcs, which are links, the number of the link
    :param limits: for each other arc with a slope, the limit that it represents, and how much of it a byte takes
    :param groups: for each arc by which files enter, all holders of the files, and the holder at which they enter;
        files with the same holders enter together
    """

    arrays: Arrays
    vertices: int
    tails: Vertices
    heads: Vertices
    slopes: Integers
    offsets: Mapping[int, int]
    source: int
    sink: int
    host: int
    total: int
    second: Fraction
    unit: int
    links: Integers
    limits: Mapping[int, tuple[Limit, Fraction]]
    groups: Mapping[int, tuple[frozenset[str], str]]

    def crossing(self, side: Mask) -> Mask:
        """Return whether each arc crosses a cut, from the source's side."""
        return crossing_arcs(self.tails, self.heads, side)


def crossing_arcs(tails: Vertices, heads: Vertices, side: Mask) -> Mask:
    """Return whether each arc crosses a cut, from the source's side."""
    crossing: Mask = side.take(tails)
    crossing &= ~side.take(heads)
    return crossing


def graph_of(arrays: Arrays, files: Iterable[File], sink: str, direct: bool = False) -> CapacityGraph:
    """Return the graph for sending files to one host.

    :param files: files with bytes that `sink` does not hold
    :param direct: whether relays are excluded
    :raises UsageError: when sizes add up to 2^60 bytes or more
    """
    return _GraphBuilder(arrays, sink, direct).build(files)


class _GraphBuilder:
    def __init__(self, arrays: Arrays, sink: str, direct: bool) -> None:
        self.arrays, self.direct = arrays, direct
        self.arcs: list[tuple[int, int, int, int]] = []
        """Tail, head, slope in half bytes per second, and offset in half bytes of each arc."""
        self.limits: dict[int, tuple[Limit, Fraction]] = {}
        self.groups: dict[int, tuple[frozenset[str], str]] = {}
        self.vertices = len(arrays.owners)
        self.at = self.sink = arrays.index[sink]

    def build(self, files: Iterable[File]) -> CapacityGraph:
        sizes: Counter[frozenset[str]] = Counter()
        for file in files:
            sizes[frozenset(file.holders)] += file.size
        total = 2 * sizes.total()
        if total >= 2 * MOST:
            raise UsageError("the files are too large for a plan", "plan for less than 2^60 bytes at once")
        for tail, head, limit, named in self.arrays.access:
            if limit is None:
                self._free(tail, head, total)
            else:
                self._limited(tail, head, limit, named)
        self._hosts(total, {name: size for holders, size in sizes.items() if len(holders) == 1 for name in holders})
        return self._graph(total, self._files(total, sizes))

    def _vertex(self) -> int:
        self.vertices += 1
        return self.vertices - 1

    def _free(self, tail: int, head: int, total: int) -> None:
        self.arcs.append((tail, head, 0, total))

    def _limited(self, tail: int, head: int, limit: int, named: Limit) -> None:
        self.limits[len(self.arcs)] = (named, ONE)
        self.arcs.append((tail, head, 2 * limit, 0))

    def _hosts(self, total: int, alone: Mapping[str, int]) -> None:
        n = len(self.arrays.hosts)
        for i, host in enumerate(self.arrays.hosts):
            if i == self.at:
                if host.io is not None:
                    self.sink = self._vertex()
                    self._limited(i, self.sink, host.io, Limit("io", host.name))
            elif host.relays and not self.direct:
                if host.io is None:
                    self._free(i, n + i, total)
                    continue
                # In half bytes, as relayed bytes r are written and read, own bytes s only read: 2 r + s <= io x T.
                self.limits[len(self.arcs)] = (Limit("io", host.name), Fraction(1, 2))
                self.arcs.append((i, n + i, host.io, -alone.get(host.name, 0)))

    def _files(self, total: int, sizes: Mapping[frozenset[str], int]) -> int:
        """Add the files; return the vertex from which all of them flow."""
        source = self._vertex()
        enter = {name: self._entrance(name) for name in sorted({name for holders in sizes for name in holders})}
        for holders, size in sizes.items():
            at = source
            if len(holders) > 1:
                at = self._vertex()
                self.arcs.append((source, at, 0, 2 * size))
            for name in sorted(holders):
                self.groups[len(self.arcs)] = (holders, name)
                self.arcs.append((at, enter[name], 0, 2 * size))
        return source

    def _entrance(self, name: str) -> int:
        host = self.arrays.index[name]
        at, io = len(self.arrays.hosts) + host, self.arrays.hosts[host].io
        if io is None:
            return at
        vertex = self._vertex()
        self._limited(vertex, at, io, Limit("io", name))
        return vertex

    def _graph(self, total: int, source: int) -> CapacityGraph:
        arrays = self.arrays
        links = arrays.links(self.at, self.direct)
        first = len(links)
        tails, heads, rates, offsets = zip(*self.arcs, strict=True)
        slopes = np.concatenate([arrays.capacities.take(links), np.array(rates, np.int64)])
        slopes[:first] *= 2
        step, unit = int(np.gcd.reduce(slopes)) or 1, gcd(total, *offsets)
        slopes //= step
        return CapacityGraph(
            arrays,
            self.vertices,
            np.concatenate([arrays.tails.take(links), np.array(tails, np.int32)]),
            np.concatenate([arrays.heads.take(links), np.array(heads, np.int32)]),
            slopes,
            {first + arc: offset // unit for arc, offset in enumerate(offsets) if offset},
            source,
            self.sink,
            self.at,
            total // unit,
            Fraction(unit, step),
            unit,
            links,
            {first + arc: limit for arc, limit in self.limits.items()},
            {first + arc: group for arc, group in self.groups.items()},
        )
