"""Confluence's experiments (section 4): n hosts, each with 100 MB but one, the sink. Each host is the sink in turn.

PlanetLab's S^3 traces, which the paper used, are not to be had. So end-to-end capacities are drawn here: a pair has
what the narrower access of both and its path leave, access and paths being lognormal. As in the paper, a host's access
is as wide as its fastest pair, in either direction. How much hosts and paths differ was chosen so that a perfect plan
helps as many sinks of 50 as in the paper, 70 %. That a third host gives a better path for 37 % of the links there, and
for a third here, is what any capacities give that are drawn independently.

The other matrix is a real one: what was measured between cloud regions, scaled to the same median.
"""

import csv
import gzip
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import count, permutations
from math import exp
from pathlib import Path
from random import Random
from statistics import median

from coalloc.collect.simulation import Capacity
from coalloc.planner import Demand, File, Host, Isp, Link, LinkKey, Network

__all__ = ["CLOUD", "SIZE", "Topology", "cloud", "drift", "planetlab"]

CLOUD = Path(__file__).parents[4] / "shared" / "data" / "bandwidth" / "skyplane_2022-01-24.csv.gz"

SIZE = 100_000_000
"""Bytes at each source."""
ACCESS = 3.75e6
"""Bytes per second: the median access of hosts, 30 Mbit/s."""
PATHS = 0.3
"""Of that, the median path."""
HOSTS_DIFFER, PATHS_DIFFER = 0.5, 1.35
"""Deviations of the logarithms."""
LARGEST = 100
"""Hosts of the largest network."""
STEP, MEMORY = 30.0, 120.0
"""Seconds between two changes of capacities, and over which they remember what they were."""

Pair = tuple[str, str]


@dataclass(frozen=True, eq=False)
class Topology:
    """End-to-end capacities in bytes per second, of all ordered pairs."""

    name: str
    capacities: Mapping[Pair, float]

    @property
    def hosts(self) -> list[str]:
        """Return the names of the hosts."""
        return sorted({host for pair in self.capacities for host in pair})

    def network(self, error: float = 0.0, seed: int = 0) -> Network:
        """Return the network as it is, or with capacities that are wrong by up to this share."""
        draw = Random(f"{self.name} {seed}")
        widest = dict.fromkeys(self.hosts, 0.0)
        for pair, capacity in self.capacities.items():
            widest |= {host: max(widest[host], capacity) for host in pair}
        hosts = tuple(Host(host, (Isp(up=int(width), down=int(width)),)) for host, width in widest.items())
        links = tuple(
            Link(LinkKey(*pair), int(capacity * draw.uniform(1 - error, 1 + error)))
            for pair, capacity in self.capacities.items()
        )
        return Network.of(hosts, links)

    def demand(self, sink: str) -> Demand:
        """Return a demand for all files at one host."""
        return Demand(tuple(File(f"of {host}", SIZE, (host,), (sink,)) for host in self.hosts if host != sink))

    def helped(self) -> float:
        """Return the share of links for which a third host gives a better path, over all triples."""
        better = [
            min(self.capacities[a, c], self.capacities[c, b]) > self.capacities[a, b]
            for a, b, c in permutations(self.hosts, 3)
        ]
        return sum(better) / len(better)


@cache
def planetlab(n: int, seed: int) -> Topology:
    """Draw hosts as on PlanetLab; with the same seed, fewer hosts are the first of more."""
    draw = Random(f"planetlab {seed}")
    names = [f"h{number:02}" for number in range(LARGEST)]
    access = {name: ACCESS * exp(draw.gauss(0, HOSTS_DIFFER)) for name in names}
    paths = {pair: PATHS * ACCESS * exp(draw.gauss(0, PATHS_DIFFER)) for pair in permutations(names, 2)}
    capacities = {(a, b): min(access[a], access[b], paths[a, b]) for a, b in permutations(names[:n], 2)}
    return Topology(f"planetlab {n} {seed}", capacities)


@cache
def cloud(n: int, seed: int) -> Topology:
    """Return this many regions of three clouds, as measured in January 2022."""
    with gzip.open(CLOUD, "rt") as file:
        rates = {
            (row["src_region"], row["dst_region"]): float(row["throughput_received"]) for row in csv.DictReader(file)
        }
    regions = sorted({region for pair in rates for region in pair})
    draw = Random(f"cloud {n} {seed}")
    chosen: list[str] = []
    for region in draw.sample(regions, len(regions)):
        if len(chosen) < n and all((region, other) in rates and (other, region) in rates for other in chosen):
            chosen.append(region)
    pairs = {pair: rates[pair] for pair in permutations(chosen, 2)}
    scale = PATHS * ACCESS / median(pairs.values())
    return Topology(f"cloud {n} {seed}", {pair: rate * scale for pair, rate in pairs.items()})


def drift(topology: Topology, deviation: float, seed: int) -> Iterator[Capacity]:
    """Return how the available capacity varies: each pair by itself, its logarithm slowly, by `deviation` in the long
    run.
    """
    if not deviation:
        return
    draw = Random(f"{topology.name} {seed} drift")
    keep = exp(-STEP / MEMORY)
    fresh = deviation * (1 - keep * keep) ** 0.5
    now = {str(LinkKey(*pair)): (capacity, 0.0) for pair, capacity in topology.capacities.items()}
    for turn in count(1):
        for link, (capacity, before) in now.items():
            after = keep * before + draw.gauss(0, fresh)
            now[link] = capacity, after
            yield Capacity(turn * STEP, link, capacity * exp(after))
