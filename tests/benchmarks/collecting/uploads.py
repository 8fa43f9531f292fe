"""The scenarios of Cheng's experiment (section VI): eight bistros (hosts), 350 MB, and background traffic from B to A.

A seed determines a scenario's network and files, and a load adds background flows. All methods meet the same traffic.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from heapq import merge
from itertools import chain, count, permutations
from math import exp, inf
from random import Random
from statistics import fmean

from coalloc.collect.methods import AllAtOnce
from coalloc.collect.simulation import FluidStream, Happening, Rate, RateShare, Underlay, simulate
from coalloc.planner import Demand, File, Host, Isp, Link, LinkKey, Network
from tests.benchmarks.collecting.transit_stub import PEERINGS, TransitStub

__all__ = ["DESTINATION", "LOADS", "UploadScenario", "measured", "upload_scenario", "weather"]

LOADS = (0, 24, 48, 72, 96, 120)
"""Numbers of background flows."""
SPLIT = (1, 3)
"""Ratio of the background flows over the two peering points."""
INFINITE = 0.75
"""Share of the background flows that are endless TCP flows; the others are UDP."""
UDP_PART = 0.05
"""Average share of a peering point's capacity for all UDP over it."""
ON_OFF = (0.2, 3.0)
"""Range of a UDP flow's mean times on and off, in seconds."""
GRAIN = 4.0
"""Seconds over which a UDP flow's rate is averaged: it turns on and off more often than other events happen, and
carries few bytes.
"""
FICKLE = 8.0
"""Seconds for which a connection keeps its share relative to others, with uneven TCP."""

DESTINATION = "A1"
TOTAL, LEAST, MOST = 350e6, 25e6, 75e6
"""Bytes at all bistros together; smallest and largest number of bytes at one."""
PROBE = 5_000_000
"""Bytes of a transfer that measures a pair."""
PROBES = 10


@dataclass(frozen=True)
class Udp:
    """A UDP stream that turns on and off.

    :param rate: bytes per second while it is on
    :param on: mean time on in seconds
    :param off: mean time off in seconds
    """

    stream: str
    rate: float
    on: float
    off: float


@dataclass(frozen=True, eq=False)
class UploadScenario:
    """A network with its background traffic, and the files to collect. A bistro has the name of its transit node."""

    seed: int
    demand: Demand
    underlay: Underlay
    udp: tuple[Udp, ...] = ()

    @property
    def hosts(self) -> tuple[str, ...]:
        """Return the names of the bistros."""
        return tuple(sorted({host for pair in self.underlay.routes for host in pair}))


@cache
def upload_scenario(seed: int, load: int, senders: int = 0) -> UploadScenario:
    """Return a network with eight bistros and their files, and `load` background flows.

    :param senders: number of stub domains that send the flows over a peering point; 0 for all
    """
    draw = Random(f"collecting {seed}")
    graph = TransitStub.drawn(draw)
    gates = sorted(node for node in graph.nodes if "." not in node)
    homes = {gate: draw.randrange(3) for gate in gates}
    bistros = {gate: draw.choice(graph.stub(gate, home)) for gate, home in homes.items()}
    sizes = _sizes(len(gates) - 1, draw)
    files = tuple(
        File(f"of {gate}", size, (gate,), (DESTINATION,))
        for gate, size in zip((gate for gate in gates if gate != DESTINATION), sizes, strict=True)
    )
    routes = {(a, b): _names(graph.route(bistros[a], bistros[b])) for a, b in permutations(gates, 2)}
    streams, udp = _traffic(graph, homes, load, senders, draw)
    capacities = {f"{start} -> {end}": capacity for (start, end), capacity in graph.edges.items()}
    return UploadScenario(seed, Demand(files), Underlay(capacities, routes, streams), udp)


def _names(route: list[tuple[str, str]]) -> dict[str, float]:
    return {f"{start} -> {end}": 1.0 for start, end in route}


def _sizes(number: int, draw: Random) -> list[int]:
    while True:
        sizes = [round(draw.uniform(LEAST, MOST)) for _ in range(number - 1)]
        last = round(TOTAL) - sum(sizes)
        if LEAST <= last <= MOST:
            return [*sizes, last]


def _traffic(
    graph: TransitStub, homes: dict[str, int], load: int, senders: int, draw: Random
) -> tuple[tuple[FluidStream, ...], tuple[Udp, ...]]:
    """Return `load` streams from B to A between stub domains without a bistro, and the UDP streams among them."""
    streams: list[FluidStream] = []
    udp: list[Udp] = []
    from_stubs, to_stubs = (_free(graph, homes, domain) for domain in ("B", "A"))
    receivers = list(chain(*to_stubs))
    for (near, far), part in zip(PEERINGS, SPLIT, strict=True):
        crossing = [stub for stub in from_stubs if any((far, near) in graph.route(stub[0], to) for to in receivers)]
        sources = list(chain(*(crossing[:senders] if senders else from_stubs)))
        flows = load * part // sum(SPLIT)
        steady = [draw.random() >= INFINITE for _ in range(flows)]
        for number in range(flows):
            while (far, near) not in (route := graph.route(draw.choice(sources), draw.choice(receivers))):
                pass
            name = f"{far} {number}"
            if steady[number]:
                on, off = draw.uniform(*ON_OFF), draw.uniform(*ON_OFF)
                mean = UDP_PART * graph.edges[far, near] / sum(steady)
                udp.append(Udp(name, mean * (on + off) / on, on, off))
            streams.append(FluidStream(name, _names(route), 0.0 if steady[number] else None))
    return tuple(streams), tuple(udp)


def _free(graph: TransitStub, homes: dict[str, int], domain: str) -> list[list[str]]:
    """Return the stubs of a domain that have no bistro."""
    gates = [(gate, home) for gate, home in homes.items() if gate[0] == domain]
    return [graph.stub(gate, stub) for gate, home in gates for stub in range(3) if stub != home]


def weather(scenario: UploadScenario, seed: int, unevenness: float = 0.0) -> Iterator[Happening]:
    """Yield the changing rates of UDP, and the changing shares of uneven TCP, in order of time and without end.

    :param unevenness: standard deviation of the logarithm of a connection's share relative to others
    """
    sources: list[Iterator[Happening]] = [
        _rates(udp, Random(f"{scenario.seed} {seed} {udp.stream}")) for udp in scenario.udp
    ]
    if unevenness:
        sources.append(_shares(scenario, unevenness, Random(f"{scenario.seed} {seed}")))
    return merge(*sources, key=lambda happening: happening.at)


def _shares(scenario: UploadScenario, unevenness: float, draw: Random) -> Iterator[RateShare]:
    names = [*scenario.underlay.routes, *(stream.name for stream in scenario.underlay.streams if stream.rate is None)]
    for turn in count():
        for name in names:
            yield RateShare(turn * FICKLE, name, exp(draw.gauss(0, unevenness)))


def _rates(udp: Udp, draw: Random) -> Iterator[Rate]:
    """Yield the average rate in each `GRAIN` seconds, without end."""
    is_on = draw.random() < udp.on / (udp.on + udp.off)
    left = draw.expovariate(1 / (udp.on if is_on else udp.off))
    for grain in count():
        wanted, on = GRAIN, 0.0
        while wanted > 0:
            step = min(left, wanted)
            on += step * is_on
            wanted, left = wanted - step, left - step
            if not left:
                is_on = not is_on
                left = draw.expovariate(1 / (udp.on if is_on else udp.off))
        yield Rate(grain * GRAIN, udp.stream, udp.rate * on / GRAIN)


@cache
def measured(scenario: UploadScenario, probes: int = PROBES) -> Network:
    """Return the planner's input. As in the paper, a pair has the mean rate of probes that run with background traffic.

    In addition to the paper's model, a host's access link is as fast as its fastest pair, in each direction.
    """
    rates = {
        pair: int(fmean(_probe(scenario, *pair, number) for number in range(probes)))
        for pair in scenario.underlay.routes
    }
    hosts = (
        Host(
            host,
            (
                Isp(
                    up=max(rates[pair] for pair in rates if pair[0] == host),
                    down=max(rates[pair] for pair in rates if pair[1] == host),
                ),
            ),
        )
        for host in scenario.hosts
    )
    return Network.of(tuple(hosts), tuple(Link(LinkKey(*pair), rate) for pair, rate in rates.items()))


def _probe(scenario: UploadScenario, source: str, sink: str, number: int) -> float:
    demand = Demand((File("probe", PROBE, (source,), (sink,)),))
    blind = Network.of(tuple(map(Host, (source, sink))), ())
    record = simulate(
        AllAtOnce(blind, demand), scenario.underlay, weather(scenario, -1 - number), report_every=inf, fast=True
    )
    return PROBE / record.seconds
