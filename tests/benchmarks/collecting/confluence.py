"""The runs behind Confluence's figures 6 to 9: the makespan for each sink, directly and with relays."""

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
"""Number of hosts that are the sink in turn, by the number of hosts in the network. (In the paper, each host is the
sink once.) There is only one network of the largest size.
"""
SIZES = tuple(SINKS)
MIDDLE = 50
"""Number of hosts in experiments that do not vary it, as in the paper."""
KS = (2, 5, 10, 15, 24)
NONE = 1e9
"""A period that never ends, for one plan only."""
PERIODS = (10.0, 15.0, 60.0, NONE)
POOLS = (10, 25, 49)
"""Numbers of simultaneous connections of direct transfers (the paper's m)."""
TOLD = 5.0
"""Seconds after which servers report progress; GridFTP servers usually do so every 5 s."""
LIMIT = 1e5


class Case(NamedTuple):
    """One case: a sink, its network, and the method that fetches its files.

    :param pool: simultaneous connections of direct transfers; 0 to collect with `adaptive`
    :param peers: number of hosts to which each host may send, besides the sink (the paper's k)
    :param period: seconds between two plans (the paper's p); `NONE` for one plan only
    :param error: share by which the capacities known at the start may be wrong
    :param drift: standard deviation of the logarithm of each capacity in the long run
    :param strict: if true, only the hosts that draw the sink as a peer can send to it, as in the paper; otherwise all
        hosts can
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
        """Return the network of the case."""
        return MATRICES[self.matrix](self.n, self.seed)

    @property
    def direct(self) -> "Case":
        """Return the same case with direct transfers from all sources at once."""
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
    """Keep only the links to random peers of each host, drawn until every host can reach every other one."""
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
    """Return all cases of the tables, without duplicates."""
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
    """Return the cases in which k and p vary: in a network of 25 hosts (the paper: 50), so that they take minutes."""
    return sinks("planetlab", min(SIZES), 3)[:4]


def doubled(case: Case) -> Case:
    """Return the same sink among twice as many hosts."""
    return case._replace(n=2 * case.n)


def sinks(matrix: str, n: int, seed: int) -> list[Case]:
    """Return a case for each of some hosts of a network as the sink; small and large PlanetLab networks share them."""
    hosts = MATRICES[matrix](n, seed).hosts
    step = 1 if matrix == "planetlab" else n // SINKS[n]
    return [Case(matrix, n, seed, host) for host in hosts[::step][: SINKS[n]]]
