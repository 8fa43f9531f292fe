"""The networks of Confluence's experiments (section 4): n hosts, of which all but one, the sink, have a file of 100 MB.

PlanetLab's S^3 traces, which the paper used, are not available. So the end-to-end capacities here are random: that of a
pair is the minimum of its path and of both access links, all lognormal. As in the paper, the planner takes a host's
access link to be as fast as its fastest pair, in either direction. The deviations of the logarithms were chosen to come
near the paper's 70 % of sinks with a gain among 50 hosts. In the paper, a path over a third host is better for 37 % of
the links. With any capacities that are drawn independently, this share is at most a third.

The other matrix is measured: the rates between cloud regions, scaled to the same median.
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
"""Median capacity of access links in bytes per second: 30 Mbit/s."""
PATHS = 0.3
"""Median capacity of paths, as a share of `ACCESS`."""
HOSTS_DIFFER, PATHS_DIFFER = 0.5, 1.35
"""Standard deviations of the logarithms of access links and of paths."""
LARGEST = 100
"""Number of hosts of the largest network."""
STEP, MEMORY = 30.0, 120.0
"""Seconds between two changes of capacities; seconds after which the correlation with a former value falls to 1/e."""

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
        """Return the planner's network.

        :param error: share by which the capacities of links may be wrong
        """
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
        """Return the share of triples of hosts in which the path over the third host is better than the direct one."""
        better = [
            min(self.capacities[a, c], self.capacities[c, b]) > self.capacities[a, b]
            for a, b, c in permutations(self.hosts, 3)
        ]
        return sum(better) / len(better)


@cache
def planetlab(n: int, seed: int, differ: float = PATHS_DIFFER) -> Topology:
    """Return n random hosts like PlanetLab's. With the same seed, a smaller network is a part of a larger one.

    :param differ: standard deviation of the logarithm of paths
    """
    draw = Random(f"planetlab {seed}")
    names = [f"h{number:02}" for number in range(LARGEST)]
    access = {name: ACCESS * exp(draw.gauss(0, HOSTS_DIFFER)) for name in names}
    paths = {pair: PATHS * ACCESS * exp(draw.gauss(0, differ)) for pair in permutations(names, 2)}
    capacities = {(a, b): min(access[a], access[b], paths[a, b]) for a, b in permutations(names[:n], 2)}
    return Topology(f"planetlab {n} {seed}", capacities)


@cache
def cloud(n: int, seed: int) -> Topology:
    """Return n regions of three clouds with the rates measured in January 2022, scaled to PlanetLab's median path."""
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
    """Yield changes of the available capacities without end. Each pair varies independently.

    :param deviation: standard deviation of the logarithm of each capacity in the long run; 0 for no changes
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
