"""The simulated networks of both papers agree with the papers' descriptions, and with each other for equal seeds."""

from collections import Counter
from itertools import islice, pairwise
from random import Random
from statistics import fmean, median

import pytest

from tests.benchmarks.collecting.sinks import ACCESS, CLOUD, PATHS, STEP, cloud, drift, planetlab
from tests.benchmarks.collecting.transit_stub import ACROSS, PEERINGS, TransitStub
from tests.benchmarks.collecting.uploads import DESTINATION, measured, upload_scenario, weather


def test_a_transit_stub_network_has_152_nodes_that_all_reach_each_other():
    graph = TransitStub.drawn(Random(1))
    assert len(graph.nodes) == 152
    assert len([node for node in graph.nodes if "." not in node]) == 8
    across = {edge for edge in graph.edges if edge[0][0] != edge[1][0]}
    assert across == {*PEERINGS, *((end, start) for start, end in PEERINGS)}
    for start, end in (("A0.0.0", "B3.2.5"), ("B1.1.1", "B1.1.4"), ("A2", "A2.0.3")):
        route = graph.route(start, end)
        assert (route[0][0], route[-1][1]) == (start, end)
        assert all(before[1] == after[0] for before, after in pairwise(route))
        assert set(route) <= graph.edges.keys()


def test_bistros_hold_350_mb_and_share_no_stub_with_traffic():
    here = upload_scenario(3, 120)
    assert here.demand.size == 350_000_000
    assert len(here.demand.files) == 7
    assert all(25e6 <= file.size <= 75e6 for file in here.demand.files)
    assert here.hosts == ("A0", "A1", "A2", "A3", "B0", "B1", "B2", "B3")
    homes = {next(iter(route)).split(" -> ")[0].rpartition(".")[0] for route in here.underlay.routes.values()}
    assert len(homes) == 8
    for stream in here.underlay.streams:
        edges = list(stream.route)
        assert edges[0].split(" -> ")[0].rpartition(".")[0] not in homes
        assert edges[-1].split(" -> ")[1].rpartition(".")[0] not in homes


def test_traffic_crosses_the_peering_points_one_to_three_and_udp_takes_5_percent():
    here = upload_scenario(3, 120)
    across = Counter(
        edge for stream in here.underlay.streams for edge in stream.route if edge[0] != edge.split()[-1][0]
    )
    assert across == {"B0 -> A0": 30, "B1 -> A1": 90}
    assert 15 < len(here.udp) < 45
    turns = 500
    taken = Counter()
    for rate in islice(weather(here, 0), len(here.udp) * turns):
        taken[rate.stream.split()[0]] += rate.bytes_per_second
    for point in ("B0", "B1"):
        assert taken[point] / turns == pytest.approx(0.05 * ACROSS, rel=0.1)


def test_more_traffic_changes_neither_demand_nor_routes():
    light, heavy = upload_scenario(5, 24), upload_scenario(5, 120)
    assert light.demand == heavy.demand
    assert light.underlay.routes == heavy.underlay.routes


def test_pairs_are_measured_as_they_are():
    quiet = measured(upload_scenario(1, 0), 1)
    assert {link.capacity for link in quiet.links.values()} == {312_500}
    busy = measured(upload_scenario(1, 24), 2)
    into = {key.source: link.capacity for key, link in busy.links.items() if key.sink == DESTINATION}
    assert max(into[host] for host in ("B0", "B1", "B2", "B3")) < 312_500 / 2 < into["A0"]


def test_planetlab_topology_has_the_described_size_rates_and_errors():
    topology = planetlab(50, 1)
    assert len(topology.capacities) == 50 * 49
    assert topology.helped() == pytest.approx(1 / 3, abs=0.03)
    assert median(topology.capacities.values()) == pytest.approx(PATHS * ACCESS, rel=0.2)
    exact, wrong = topology.network(), topology.network(error=0.3, seed=1)
    parts = [wrong.links[key].capacity / link.capacity for key, link in exact.links.items()]
    assert 0.69 < min(parts) < 0.75 < 1.25 < max(parts) < 1.31
    assert exact.hosts == wrong.hosts
    assert len(topology.demand("h07").files) == 49


def test_capacities_drift_about_what_they_were():
    topology = planetlab(5, 1)
    changes = list(islice(drift(topology, 0.3, 1), 20 * 4000))
    assert [change.at for change in changes[::20]][:3] == [STEP, 2 * STEP, 3 * STEP]
    own = [change.bytes_per_second for change in changes if change.link == "h00 -> h01"]
    assert median(own) == pytest.approx(topology.capacities["h00", "h01"], rel=0.15)
    logs = [
        change.bytes_per_second / topology.capacities["h00", "h01"] for change in changes if change.link == "h00 -> h01"
    ]
    assert fmean(0.74 < log < 1.35 for log in logs) == pytest.approx(0.68, abs=0.1)
    assert list(drift(topology, 0.0, 1)) == []


@pytest.mark.skipif(not CLOUD.exists(), reason=f"{CLOUD} is not there")
def test_the_cloud_is_scaled_and_whole():
    topology = cloud(30, 2)
    assert len(topology.hosts) == 30
    assert len(topology.capacities) == 30 * 29
    assert median(topology.capacities.values()) == pytest.approx(PATHS * ACCESS)
