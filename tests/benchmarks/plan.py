"""A scenario on its topology: links to the client, times of events, and the ideal. Pure.

The network itself is made by `tests.benchmarks.field`.
"""

from dataclasses import dataclass, replace

from tests.benchmarks.ideal import ROUND_TRIPS, Change, Link, Schedule, payload_share
from tests.benchmarks.scenarios import Event, Scenario
from tests.testbed.topology import Settings, Topology

__all__ = ["CLIENT", "Plan", "Way"]

CLIENT = "client"


@dataclass(frozen=True, slots=True)
class Way:
    """The link from a host towards the client.

    :param direction: `ab` or `ba`, as the data goes
    :param settings: what the link does to it
    :param round_trip: seconds from the host to the client and back
    :param onward: the host at its other end
    """

    link: str
    direction: str
    settings: Settings
    round_trip: float
    onward: str


class Plan:
    """A scenario on its topology, for one run.

    :ivar sources: the hosts that have the file, in the order of the topology
    :ivar schemes: what each speaks to coget
    :ivar ways: the links of each host's path, the nearest to the client first
    :ivar timeline: the scenario's events with their seconds
    :ivar ideal: the seconds in which the file could be here
    """

    def __init__(self, scenario: Scenario, congestion: str, seed: int = 1) -> None:
        self.scenario = scenario
        self.topology = _topology(scenario, congestion, seed)
        self.ways = _ways(self.topology)
        self.sources = [host for host in self.topology.hosts if host[0] == "s" and host[1:].isdigit()]
        schemes = scenario.schemes * len(self.sources)
        self.schemes = dict(zip(self.sources, schemes, strict=False))
        schedule = self._undisturbed()
        self.timeline: list[tuple[float, Event]] = []
        for event in scenario.events:
            at = schedule.seconds(event.share * scenario.size)
            self.timeline.append((at, event))
            schedule = schedule.after(Change(at, event.source, event.left * self.rate(event.source)))
        self.ideal = schedule.seconds(scenario.size)

    @property
    def best(self) -> str:
        """The source with the fastest link; the nearest of several."""
        return max(self.sources, key=lambda host: (self.ways[host].settings.rate, -self.ways[host].round_trip))

    def rate(self, host: str) -> float:
        """Return the rate of a host's link before any event: payload bytes per second."""
        settings = self.ways[host].settings
        return settings.rate * payload_share() * (1 - settings.loss)

    def alone(self, host: str) -> float:
        """Return the rate of the links from a host to the client before any event: payload bytes per second."""
        onward = self.ways[host].onward
        return self.rate(host) if onward == CLIENT else min(self.rate(host), self.alone(onward))

    def _undisturbed(self) -> Schedule:
        onward = {host: None if way.onward == CLIENT else way.onward for host, way in self.ways.items()}
        links = {host: Link(self.rate(host), onward[host]) for host in self.ways}
        return Schedule(links, {host: self._ready(host) for host in self.sources})

    def _ready(self, host: str) -> float:
        return ROUND_TRIPS[self.schemes[host]] * self.ways[host].round_trip


def _topology(scenario: Scenario, congestion: str, seed: int) -> Topology:
    """Return the scenario's topology, with its loss on the links of the sources."""
    topology = Topology.load(scenario.topology)
    links = tuple(
        replace(link, ab=link.ab.changed(loss=scenario.loss), ba=link.ba.changed(loss=scenario.loss))
        if link.b.startswith("s")
        else link
        for link in topology.links
    )
    hosts = dict.fromkeys(topology.hosts, congestion)
    return replace(topology, links=links, congestion=hosts, seed=seed)


def _ways(topology: Topology) -> dict[str, Way]:
    found: dict[str, Way] = {}
    new = [CLIENT]
    while new:
        near = new.pop(0)
        before = found[near].round_trip if near in found else 0.0
        for link in topology.links:
            if near not in (link.a, link.b):
                continue
            far, direction, there, back = (
                (link.b, "ba", link.ab, link.ba) if near == link.a else (link.a, "ab", link.ba, link.ab)
            )
            if far not in found and far != CLIENT:
                found[far] = Way(link.name, direction, back, before + there.delay + back.delay, near)
                new.append(far)
    return found
