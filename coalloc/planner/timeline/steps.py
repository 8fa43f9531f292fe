"""One time step of a collect job: the whole units of data that each link, and each host's access, can move in it.

The static bound uses its arcs once, the time-expanded graph (Cheng, III) once per step. Sets of links that share a
bottleneck, and prices, cannot be expressed and are ignored.
"""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from math import ceil, floor
from typing import Literal, NamedTuple

from coalloc.errors import UsageError
from coalloc.planner.network import Demand, File, LinkKey, Network

__all__ = ["ARRIVING", "Arc", "FileOrigins", "Kind", "OriginHost", "StepPlace", "Steps", "Units"]

Kind = Literal["host", "send", "up", "down", "receive", "store"]
ARRIVING = ("down", "receive", "store")
"""Kinds of places through which data arrive at a host, at the end of a step."""


class StepPlace(NamedTuple):
    """A place of data within a step: at a host, or at a limit of its access."""

    kind: Kind
    host: str
    isp: str = ""


class Units(NamedTuple):
    """The units of a plan: the length of a step in seconds, and a unit of data in bytes."""

    seconds: Fraction
    bytes: int


class Arc(NamedTuple):
    """An arc between places for at most `capacity` units per step. Only an arc with a `link` leads to the next step."""

    tail: int
    head: int
    capacity: int
    link: LinkKey | None = None


class OriginHost(NamedTuple):
    """A host that has data of its own from step `ready` on."""

    host: str
    ready: int


class FileOrigins(NamedTuple):
    """A file with several origins; the flow decides the units that each origin sends."""

    file: File
    units: int
    origins: tuple[OriginHost, ...]


@dataclass
class Steps:
    """The places and arcs of a step, and the data to be moved. Hosts are numbered from 0, the destination last.

    Relayed data are written in one step and read in the next, and a flow cannot limit the sum of both. So a relay can
    use half of its `io` for writing and half for reading, and half of its `storage` for the arrivals of a step; a
    holder with a limit of `io` does not relay.

    :param limits: whether the rates of hosts' own network connections count; in the paper, only links do
    :raises UsageError: when the files do not have one common destination, or have no bytes
    """

    network: Network
    demand: Demand
    units: Units
    limits: bool = True
    places: dict[StepPlace, int] = field(default_factory=dict, init=False)
    arcs: list[Arc] = field(default_factory=list, init=False)
    origins: dict[OriginHost, int] = field(default_factory=dict, init=False)
    """Units of the files that have only this origin."""
    copies: list[FileOrigins] = field(default_factory=list, init=False)

    def __post_init__(self) -> None:
        self.demand = Demand(tuple(file for file in self.demand.files if file.size))
        destinations = {name for file in self.demand.files for name in file.destinations}
        if not self.demand.size:
            raise UsageError("there are no bytes to move", "give files that are not empty")
        if len(destinations) != 1:
            raise UsageError(
                f"a timetable has one destination, not {len(destinations)}", "make a separate plan for each destination"
            )
        (self.destination,) = destinations
        self._holders = {name for file in self.demand.files for name in file.holders}
        for name in sorted(self.network.hosts, key=self.destination.__eq__):
            self._place(StepPlace("host", name))
        self._supply()
        for key, capacity in self._links():
            self._add(key, capacity)

    @property
    def total(self) -> int:
        """Units that have to arrive."""
        return sum(self.origins.values()) + sum(each.units for each in self.copies)

    @property
    def hosts(self) -> list[str]:
        """The names of the hosts, in the order of their places."""
        return [place.host for place in self.places if place.kind == "host"]

    @property
    def readies(self) -> list[int]:
        """The steps at which data become available."""
        return sorted({origin.ready for origin in self.origins})

    def at(self, host: str) -> int:
        """Return the number of a host's place."""
        return self.places[StepPlace("host", host)]

    def origin(self, file: File, host: str) -> OriginHost:
        """Return the origin of a file at a holder: the host, and the step from which it can send."""
        return OriginHost(host, ceil(Fraction(file.available) / self.units.seconds))

    def _place(self, place: StepPlace) -> int:
        return self.places.setdefault(place, len(self.places))

    def _room(self, capacity: int) -> int:
        """Return the whole units that a capacity in bytes per second can move in a step, at most all units."""
        return min(floor(capacity * self.units.seconds / self.units.bytes), self.total)

    def _links(self) -> Iterator[tuple[LinkKey, int]]:
        for key, link in self.network.links.items():
            sink = self.network.hosts[key.sink]
            busy = self.limits and sink.io is not None and key.sink in self._holders
            into = key.sink == self.destination or (sink.relays and not busy)
            capacity = self._room(link.capacity)
            if capacity and into and key.source != self.destination:
                yield key, capacity

    def _add(self, key: LinkKey, capacity: int) -> None:
        here = self.at(key.source)
        for place, room in self._sending(key) if self.limits else ():
            here = self._narrow(here, self._place(place), room)
        there = self.at(key.sink)
        for place, room in self._receiving(key) if self.limits else ():
            after, there = there, self._place(place)
            self._narrow(there, after, room)
        self.arcs.append(Arc(here, there, capacity, key))

    def _sending(self, key: LinkKey) -> Iterator[tuple[StepPlace, int]]:
        """Yield the places that data pass from a host to a link, each with its capacity in units per step."""
        host = self.network.hosts[key.source]
        if host.io is not None:
            room = self._room(host.io)
            yield StepPlace("send", host.name), room if host.name in self._holders else room - room // 2
        if host.isps:
            up = {isp.name: isp.up for isp in host.isps}[key.source_isp]
            yield StepPlace("up", host.name, key.source_isp), self.total if up is None else self._room(up)

    def _receiving(self, key: LinkKey) -> Iterator[tuple[StepPlace, int]]:
        """Yield the places that data pass from a link to a host, the last place first, each with its capacity."""
        host, wanted = self.network.hosts[key.sink], key.sink == self.destination
        if host.storage is not None and not wanted:
            yield StepPlace("store", host.name), min(host.storage // self.units.bytes // 2, self.total)
        if host.io is not None:
            room = self._room(host.io)
            yield StepPlace("receive", host.name), room if wanted else room // 2
        if host.isps:
            down = {isp.name: isp.down for isp in host.isps}[key.sink_isp]
            yield StepPlace("down", host.name, key.sink_isp), self.total if down is None else self._room(down)

    def _narrow(self, tail: int, head: int, room: int) -> int:
        arc = Arc(tail, head, room)
        if arc not in self._narrows:
            self._narrows.add(arc)
            self.arcs.append(arc)
        return head

    _narrows: set[Arc] = field(default_factory=set, init=False)

    def _supply(self) -> None:
        alone: defaultdict[OriginHost, int] = defaultdict(int)
        for file in self.demand.files:
            if unknown := {*file.holders, self.destination} - self.network.hosts.keys():
                raise UsageError(
                    f"{file.name} names {', '.join(sorted(unknown))}, which the network does not have", "add it"
                )
            origins = tuple(self.origin(file, host) for host in file.holders)
            for origin in origins:
                alone[origin] += file.size if len(origins) == 1 else 0
            if len(origins) > 1:
                self.copies.append(FileOrigins(file, ceil(Fraction(file.size, self.units.bytes)), origins))
        self.origins = {origin: ceil(Fraction(size, self.units.bytes)) for origin, size in alone.items()}
