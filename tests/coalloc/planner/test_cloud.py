"""Plans on a matrix measured between the regions of three clouds."""

import csv
import gzip
from fractions import Fraction
from pathlib import Path

import pytest

from coalloc.planner import least_makespan
from coalloc.planner.certificate import check
from coalloc.planner.network import Demand, File, Host, Isp, Link, LinkKey, Network
from tests.support.effort import effort

MATRIX = Path(__file__).parents[4] / "shared" / "data" / "bandwidth" / "skyplane_2022-01-24.csv.gz"
EVERY = effort(305, 61)
"""Of so many pairs of places, one is tried."""

pytestmark = pytest.mark.skipif(not MATRIX.exists(), reason=f"{MATRIX} is not there")


@pytest.fixture(scope="module")
def cloud() -> Network:
    """Return a network with up- and downlinks of the best measured rate: without them, relays gain without limit."""
    with gzip.open(MATRIX, "rt") as lines:
        rates = {
            (row["src_region"], row["dst_region"]): int(float(row["throughput_received"]) / 8)
            for row in csv.DictReader(lines)
            if row["src_region"] != row["dst_region"]
        }
    up, down = {}, {}
    for (source, sink), rate in rates.items():
        up[source], down[sink] = max(rate, up.get(source, 0)), max(rate, down.get(sink, 0))
    hosts = tuple(Host(name, (Isp("", up[name], down.get(name)),)) for name in up)
    return Network.of(hosts, tuple(Link(LinkKey(*pair), rate) for pair, rate in rates.items()))


@pytest.mark.long
def test_relays_gain_on_many_pairs_and_lose_on_none(cloud: Network):
    gains = []
    for key in list(cloud.links)[::EVERY]:
        demand = Demand((File("x", 10**11, (key.source,), (key.sink,)),))
        plan = least_makespan(cloud, demand)
        check(cloud, demand, plan)
        assert plan.direct is not None
        assert plan.makespan <= one_relay(cloud, key, 10**11) <= plan.direct
        gains.append(plan.direct / plan.makespan)
    assert sum(gain >= 1.2 for gain in gains) >= 0.3 * len(gains)
    assert 1 in gains


def one_relay(cloud: Network, key: LinkKey, size: int) -> Fraction:
    """Return the seconds over the best single relay, or directly."""
    rates = {pair: link.capacity for pair, link in cloud.links.items()}
    relays = [name for name in cloud.hosts if name not in key[:2]]
    over = [min(rates.get(LinkKey(key.source, relay), 0), rates.get(LinkKey(relay, key.sink), 0)) for relay in relays]
    return Fraction(size, max(rates[key], *over))


def test_files_from_far_regions_are_collected_over_relays(cloud: Network):
    sink = "aws:eu-central-1"
    far = sorted((link.capacity, key.source) for key, link in cloud.links.items() if key.sink == sink)[:8]
    demand = Demand(tuple(File(name, 10**11, (name,), (sink,)) for _, name in far))
    plan = least_makespan(cloud, demand)
    check(cloud, demand, plan)
    assert plan.direct is not None
    assert plan.makespan * Fraction(11, 10) < plan.direct
