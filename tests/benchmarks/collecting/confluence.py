"""Confluence's figures 6 to 9, run by run: the time until each sink has all, directly and over other sources."""

from collections.abc import Set
from random import Random
from typing import NamedTuple

from coalloc.collect.methods import AdaptiveCollecting, AllAtOnce, Concurrent, Method
from coalloc.collect.simulation import Underlay, simulate
from coalloc.planner import Demand, Network
from tests.benchmarks.collecting.sinks import CLOUD, Topology, cloud, drift, planetlab

__all__ = [
    "KS",
    "MATRICES",
    "MIDDLE",
    "NONE",
    "PERIODS",
    "POOLS",
    "SINKS",
    "SIZES",
    "Case",
    "Run",
    "cases",
    "doubled",
    "few",
    "run",
    "sinks",
]

MATRICES = {"planetlab": planetlab, "cloud": cloud}
SINKS = {25: 12, 50: 8, 100: 4}
"""Number of hosts that take turns as the sink, by the number of hosts; the paper has all of them take turns. There is
only one of the largest networks.
"""
SIZES = tuple(SINKS)
MIDDLE = 50
"""Hosts in experiments that do not vary their number, as in the paper."""
KS = (2, 5, 10, 15, 24)
NONE = 1e9
"""A period that never ends, for one plan only."""
PERIODS = (10.0, 15.0, 60.0, NONE)
POOLS = (10, 25, 49)
"""Connections of a direct transfer at once: m."""
TOLD = 5.0
"""Seconds after which servers report progress; GridFTP servers usually do so every 5 s."""
LIMIT = 1e5


class Case(NamedTuple):
    """One case: a sink, its network, and the method that fetches its files.

    :param pool: connections at once, of a direct transfer; 0 for Confluence
    :param peers: k, hosts to which each sends besides the sink
    :param period: p, seconds between two plans; `NONE` for one plan only
    :param error: share by which known capacities may be wrong at the start
    :param drift: deviation of the logarithm of each capacity in the long run
    :param strict: whether the sink is a peer like all others, as in the paper; else each host can always send to it
    """

    matrix: str
    n: int
    seed: int
    sink: str
    pool: int = 0
    peers: int = 10
    period: float = 15.0
    error: float = 0.3
    drift: float = 0.3
    strict: bool = False

    @property
    def topology(self) -> Topology:
        """Return its network."""
        return MATRICES[self.matrix](self.n, self.seed)

    @property
    def direct(self) -> "Case":
        """Return the case of all files at once, directly."""
        return Case(self.matrix, self.n, self.seed, self.sink, pool=self.n - 1, error=0.0, drift=self.drift)


class Run(NamedTuple):
    """The result of a run."""

    case: Case
    seconds: float


def run(case: Case) -> Run:
    """Carry out the case in virtual time."""
    topology = case.topology
    known, demand = topology.network(case.error, case.seed), topology.demand(case.sink)
    if case.strict:
        known = _strictly(known, case.peers, case.seed)
    ground = Underlay.of(topology.network())
    weather = drift(topology, case.drift, case.seed)
    record = simulate(_method(case, known, demand), ground, weather, report_every=TOLD, limit=LIMIT, fast=True)
    if record.outcome != "done":
        raise RuntimeError(f"{case}: {record.outcome}")
    return Run(case, record.seconds)


def _strictly(network: Network, peers: int, seed: int) -> Network:
    """Limit the hosts that each host knows, at random; each host can still reach each other one."""
    draw, ways = Random(seed), set()
    while not all(_reached(ways, host) == network.hosts.keys() for host in network.hosts):
        others = {host: sorted(network.hosts.keys() - {host}) for host in network.hosts}
        ways = {(host, peer) for host in network.hosts for peer in draw.sample(others[host], peers)}
    return network.keeping(lambda key: key[:2] in ways)


def _reached(ways: Set[tuple[str, str]], start: str) -> Set[str]:
    found, new = {start}, {start}
    while new:
        new = {sink for source, sink in ways if source in new} - found
        found |= new
    return found


def _method(case: Case, known: Network, demand: Demand) -> Method:
    if not case.pool:
        return AdaptiveCollecting(known, demand, case.seed, peers=case.peers, period=case.period)
    if case.pool < len(demand.files):
        return Concurrent(known, demand, case.seed, group=case.pool)
    return AllAtOnce(known, demand)


def cases(seeds: int) -> list[Case]:
    """Return all cases that the tables show, without duplicates."""
    networks = [(seed, n) for seed in range(1, seeds + 1) for n in SIZES if n < max(SIZES) or seed == 1]
    whole = [case for seed, n in networks for case in sinks("planetlab", n, seed)]
    if CLOUD.exists():
        whole += sinks("cloud", MIDDLE, 1)
    varied = [case._replace(peers=k) for case in few() for k in KS]
    varied += [case._replace(peers=k, strict=True) for case in few() for k in (min(KS), 10)]
    varied += [case._replace(period=period) for case in few() for period in PERIODS]
    pools = [case.direct._replace(pool=pool) for case in sinks("planetlab", MIDDLE, 1) for pool in POOLS]
    more = [doubled(case).direct for seed in range(1, seeds + 1) for case in sinks("planetlab", MIDDLE, seed)]
    return list(dict.fromkeys([*(case.direct for case in whole), *more, *pools, *whole, *varied]))


def few() -> list[Case]:
    """Return the sinks for which k and p vary: of 25 hosts (the paper has 50), so that the run takes minutes."""
    return sinks("planetlab", min(SIZES), 3)[:4]


def doubled(case: Case) -> Case:
    """Return the same sink among twice as many hosts."""
    return case._replace(n=2 * case.n)


def sinks(matrix: str, n: int, seed: int) -> list[Case]:
    """Return some hosts of a network, each of which is the sink; on PlanetLab the same in small and large networks."""
    hosts = MATRICES[matrix](n, seed).hosts
    step = 1 if matrix == "planetlab" else n // SINKS[n]
    return [Case(matrix, n, seed, host) for host in hosts[::step][: SINKS[n]]]
