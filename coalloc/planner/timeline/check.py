"""A checker of timetables by their certificates, in whole numbers, without a solver and without arrays."""

from collections import Counter
from collections.abc import Iterator, Mapping
from fractions import Fraction
from itertools import pairwise
from math import ceil, floor
from typing import NamedTuple

from coalloc.planner.network import Demand, File, LinkKey, Network
from coalloc.planner.timeline.steps import OriginHost, Units
from coalloc.planner.timeline.timetable import Node, TimetableCertificate

__all__ = ["faults"]


class _Edge(NamedTuple):
    """An edge of G_T with its flow; `room` is its capacity."""

    tail: Node
    head: Node
    room: int
    cost: int
    flow: int


def faults(
    certificate: TimetableCertificate, network: Network, demand: Demand, units: Units, *, limits: bool = True
) -> list[str]:
    """Return the faults of a certificate; an empty list if it is valid.

    A valid flow moves all data, within every limit, at the least cost, in the least number of steps T.
    """
    model = _Model(network, demand, units, limits)
    edges = list(model.edges(certificate.steps, certificate))
    found = [*model.strangers(certificate), *_overfull(edges), *_unbalanced(edges, model.supplies())]
    if limits:
        found += model.overworked(certificate)
    return [*found, *_cheaper(edges, certificate.prices), *model.sooner(certificate)]


def _overfull(edges: list[_Edge]) -> Iterator[str]:
    for edge in edges:
        if not 0 <= edge.flow <= edge.room:
            yield f"{edge.tail} -> {edge.head} carries {edge.flow} of at most {edge.room}"


def _unbalanced(edges: list[_Edge], supplies: Mapping[Node, int]) -> Iterator[str]:
    left = Counter(supplies)
    for edge in edges:
        left[edge.tail] -= edge.flow
        left[edge.head] += edge.flow
    yield from (f"{units} units are left at {node}" for node, units in left.items() if units)


def _cheaper(edges: list[_Edge], prices: Mapping[Node, int]) -> Iterator[str]:
    """Check complementary slackness: an edge with spare capacity offers no gain, and an edge in use makes no loss."""
    for edge in edges:
        if edge.tail not in prices or edge.head not in prices:
            yield f"{edge.tail} -> {edge.head} lacks a price"
            continue
        gain = prices[edge.head] - prices[edge.tail] - edge.cost
        if (gain > 0 and edge.flow < edge.room) or (gain < 0 and edge.flow > 0):
            yield f"{edge.tail} -> {edge.head} could be used better"


class _Model:
    def __init__(self, network: Network, demand: Demand, units: Units, limits: bool) -> None:
        self.network, self.units, self.limits = network, units, limits
        self.files = [file for file in demand.files if file.size]
        (self.destination,) = {name for file in demand.files for name in file.destinations}
        self.holders = {name for file in self.files for name in file.holders}
        self.total = sum(units for node, units in self.supplies().items() if units > 0)
        self.links = {key: self._room(link.capacity) for key, link in network.links.items() if self._used(key)}
        self.links = {key: room for key, room in self.links.items() if room}

    def _room(self, capacity: int) -> int:
        return min(floor(Fraction(capacity) * self.units.seconds / self.units.bytes), self.total)

    def _used(self, key: LinkKey) -> bool:
        sink = self.network.hosts[key.sink]
        relays = sink.relays and not (self.limits and sink.io is not None and key.sink in self.holders)
        return key.source != self.destination and (key.sink == self.destination or relays)

    def origin(self, file: File, holder: str) -> OriginHost:
        return OriginHost(holder, ceil(Fraction(file.available) / self.units.seconds))

    def waiting(self, origin: OriginHost) -> Node:
        return ("waiting", origin.host, "", origin.ready) if origin.ready else ("host", origin.host, "", 0)

    def supplies(self) -> dict[Node, int]:
        """Return the units that each node supplies, negative at D', where all units are wanted."""
        sizes: Counter[Node] = Counter()
        found: Counter[Node] = Counter()
        for file in self.files:
            if len(file.holders) == 1:
                sizes[self.waiting(self.origin(file, file.holders[0]))] += file.size
            else:
                found["file", file.name, "", 0] += -(-file.size // self.units.bytes)
        found.update({node: -(-size // self.units.bytes) for node, size in sizes.items()})
        found["everywhere", "", "", 0] = -sum(found.values())
        return found

    def edges(self, count: int, certificate: TimetableCertificate | None = None) -> Iterator[_Edge]:
        """Yield all edges of the time-expanded graph, with the flows of the certificate; without one, flows are 0."""
        moved = certificate.moved if certificate else {}
        narrow: Counter[tuple[Node, Node]] = Counter()
        rooms: dict[tuple[Node, Node], int] = {}
        most = max(self.links.values(), default=1)
        scale = max(most, 1000)
        much = len(self.network.hosts) * (count + 1) * (min(most, 1000) + 1)
        arrived: Counter[int] = Counter()
        for key, room in self.links.items():
            worth = room if most <= 1000 else room * 1000 // scale
            for step in range(count):
                flow = moved.get((step, key), 0)
                *before, tail = self._before(key, step, rooms)
                head, *after = self._after(key, step + 1, rooms)
                yield _Edge(tail, head, room, much - (count + 1) * worth, flow)
                for nodes in ([*before, tail], [head, *after]):
                    narrow.update(dict.fromkeys(pairwise(nodes), flow))
                arrived[step + 1] += flow if key.sink == self.destination else 0
        yield from (_Edge(*ends, room, 0, narrow[ends]) for ends, room in rooms.items())
        for step in range(count + 1):
            end = ("host", self.destination, "", step)
            yield _Edge(end, ("everywhere", "", "", 0), self.total, 0, arrived[step])
        yield from self._waits(count, certificate)

    def _waits(self, count: int, certificate: TimetableCertificate | None) -> Iterator[_Edge]:
        held, copied = (certificate.held, certificate.copied) if certificate else ({}, {})
        origins = {self.origin(file, name) for file in self.files for name in file.holders}
        for origin in origins:
            for step in range(origin.ready or 1, count):
                flow = held.get((origin, step), 0)
                yield _Edge(self.waiting(origin), ("host", origin.host, "", step), self.total, step, flow)
        for file in self.files:
            for name in file.holders if len(file.holders) > 1 else ():
                origin = self.origin(file, name)
                flow = copied.get((file.name, origin), 0)
                yield _Edge(("file", file.name, "", 0), self.waiting(origin), self.total, 0, flow)

    def _before(self, key: LinkKey, step: int, rooms: dict[tuple[Node, Node], int]) -> list[Node]:
        """Return the nodes from a host to the beginning of a link: the host, and the limits of its access."""
        host, nodes = self.network.hosts[key.source], [("host", key.source, "", step)]
        limits = {isp.name: isp.up for isp in host.isps} if self.limits else {}
        if self.limits and host.io is not None:
            nodes.append(("send", host.name, "", step))
            room = self._room(host.io)
            rooms[nodes[-2], nodes[-1]] = room if host.name in self.holders else room - room // 2
        if limits:
            up = limits[key.source_isp]
            nodes.append(("up", host.name, key.source_isp, step))
            rooms[nodes[-2], nodes[-1]] = self.total if up is None else self._room(up)
        return nodes

    def _after(self, key: LinkKey, step: int, rooms: dict[tuple[Node, Node], int]) -> list[Node]:
        host, nodes = self.network.hosts[key.sink], [("host", key.sink, "", step)]
        limits = {isp.name: isp.down for isp in host.isps} if self.limits else {}
        wanted = host.name == self.destination
        if self.limits and host.storage is not None and not wanted:
            nodes.insert(0, ("store", host.name, "", step))
            rooms[nodes[0], nodes[1]] = min(host.storage // self.units.bytes // 2, self.total)
        if self.limits and host.io is not None:
            nodes.insert(0, ("receive", host.name, "", step))
            rooms[nodes[0], nodes[1]] = self._room(host.io) if wanted else self._room(host.io) // 2
        if limits:
            down = limits[key.sink_isp]
            nodes.insert(0, ("down", host.name, key.sink_isp, step))
            rooms[nodes[0], nodes[1]] = self.total if down is None else self._room(down)
        return nodes

    def strangers(self, certificate: TimetableCertificate) -> Iterator[str]:
        """Check that the flows use only existing links and steps."""
        claimed = [
            units
            for (step, key), units in certificate.moved.items()
            if key not in self.links or not 0 <= step < certificate.steps
        ]
        if claimed:
            yield f"{sum(claimed)} units are moved over links or in steps that are not there"

    def overworked(self, certificate: TimetableCertificate) -> Iterator[str]:
        """Check the bytes that each host reads, writes and stages per step; units are whole bytes, so this is exact."""
        work: Counter[tuple[str, int]] = Counter()
        stored: Counter[tuple[str, int]] = Counter()
        for (step, key), units in certificate.moved.items():
            size = units * self.units.bytes
            work[key.source, step] += size
            work[key.sink, step] += size
            stored[key.sink, step] += size
            stored[key.sink, step + 1] += size
        for (name, step), size in work.items():
            io = self.network.hosts[name].io
            if io is not None and size > io * self.units.seconds:
                yield f"{name} reads and writes {size} bytes in step {step}"
        for (name, step), size in stored.items():
            storage = self.network.hosts[name].storage
            if storage is not None and size > storage and name != self.destination:
                yield f"{name} keeps {size} bytes of others in step {step}"

    def sooner(self, certificate: TimetableCertificate) -> Iterator[str]:
        """Check that one step less is not enough: more units are inside the cut than can leave it."""
        inside = certificate.cut
        held = sum(units for node, units in self.supplies().items() if node in inside)
        out = sum(
            edge.room for edge in self.edges(certificate.steps - 1) if edge.tail in inside and edge.head not in inside
        )
        if ("everywhere", "", "", 0) in inside or held <= out:
            yield f"{certificate.steps - 1} steps may do as well: {held} units inside of the cut, {out} get out"
