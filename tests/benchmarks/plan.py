"""A scenario on its topology: links to the client, times of events, and the ideal time. Pure.

`tests.benchmarks.field` creates the network.
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

    :param direction: direction of the data, `ab` or `ba`
    :param settings: settings of the link in this direction
    :param round_trip: seconds from the host to the client and back
    :param onward: the host at the other end of the link
    """

    link: str
    direction: str
    settings: Settings
    round_trip: float
    onward: str


class Plan:
    """A scenario on its topology, for one run.

    :ivar sources: the hosts that have the file, in the order of the topology
    :ivar schemes: URL scheme of each source for coget
    :ivar ways: by host, the link from it towards the client
    :ivar timeline: the scenario's events, with their times in seconds after the start
    :ivar ideal: the ideal time of the transfer in seconds
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
        """Return the source with the fastest link; of several, the one with the shortest round-trip time."""
        return max(self.sources, key=lambda host: (self.ways[host].settings.rate, -self.ways[host].round_trip))

    def rate(self, host: str) -> float:
        """Return the rate of a host's own link before any event, in payload bytes per second."""
        settings = self.ways[host].settings
        return settings.rate * payload_share() * (1 - settings.loss)

    def alone(self, host: str) -> float:
        """Return the rate of the path from a host to the client before any event, in payload bytes per second."""
        onward = self.ways[host].onward
        return self.rate(host) if onward == CLIENT else min(self.rate(host), self.alone(onward))

    def _undisturbed(self) -> Schedule:
        onward = {host: None if way.onward == CLIENT else way.onward for host, way in self.ways.items()}
        links = {host: Link(self.rate(host), onward[host]) for host in self.ways}
        return Schedule(links, {host: self._ready(host) for host in self.sources})

    def _ready(self, host: str) -> float:
        return ROUND_TRIPS[self.schemes[host]] * self.ways[host].round_trip


def _topology(scenario: Scenario, congestion: str, seed: int) -> Topology:
    """Return the topology, with the scenario's loss on the links of the sources."""
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
