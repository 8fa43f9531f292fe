"""Plans of scenarios agree with values computed by hand."""

from dataclasses import replace

import pytest

from tests.benchmarks.plan import Plan
from tests.benchmarks.scenarios import RANDOM, SCENARIOS, named

SHARE = 1448 / 1500
RATES = {"s1": 400e6 / 8, "s2": 200e6 / 8, "s3": 100e6 / 8, "s4": 50e6 / 8}
ROUND_TRIP = 2 * 0.1e-3


def plan(name: str) -> Plan:
    return Plan(named(name), named(name).congestion[0])


@pytest.mark.parametrize("name", [*SCENARIOS, *(f"{RANDOM}-{seed}" for seed in range(1, 41))])
def test_every_scenario_can_end(name: str):
    made = plan(name)
    assert 0 < made.ideal < 120
    assert sum(map(made.alone, made.sources)) <= 1000e6 / 8
    assert all(at > 0 for at, _ in made.timeline)
    assert [at for at, _ in made.timeline] == sorted(at for at, _ in made.timeline)
    assert made.best in made.sources


def test_hetero_is_the_sum_of_its_links():
    bytes_missed_in_set_up = 4 * ROUND_TRIP * sum(RATES.values()) * SHARE
    assert plan("hetero").ideal == pytest.approx(((1 << 30) + bytes_missed_in_set_up) / (sum(RATES.values()) * SHARE))


def test_far_sources_begin_after_four_round_trips():
    made = plan("far")
    assert [round(made.ways[host].round_trip, 6) for host in made.sources] == [0.02, 0.08, 0.16]
    missed = sum(4 * made.ways[host].round_trip * made.rate(host) for host in made.sources)
    assert made.ideal == pytest.approx(((1 << 30) + missed) / sum(map(made.rate, made.sources)))


def test_loss_is_on_the_links_of_the_sources_only():
    made = plan("farloss")
    assert made.rate("s1") == pytest.approx(400e6 / 8 * SHARE * 0.999)
    shared = Plan(replace(SCENARIOS["shared"], loss="0.1%"), "cubic")
    assert {link.name: link.ba.loss for link in shared.topology.links} == {
        "client-neck": 0,
        "neck-s1": 0.001,
        "neck-s2": 0.001,
    }


def test_slow_and_late_scenarios_slow_the_fastest_source_at_the_stated_time():
    half, most = plan("slow"), plan("late")
    full, left = sum(RATES.values()), sum(RATES.values()) - 0.9 * RATES["s1"]
    hetero = plan("hetero").ideal
    assert half.ideal - hetero == pytest.approx(0.5 * (1 << 30) / SHARE * (1 / left - 1 / full))
    assert most.ideal - hetero == pytest.approx(0.1 * (1 << 30) / SHARE * (1 / left - 1 / full))


def test_ideal_excludes_a_killed_source():
    left = sum(RATES.values()) - RATES["s1"]
    half = plan("kill").timeline[0][0]
    assert plan("kill").ideal == pytest.approx(half + 0.5 * (1 << 30) / SHARE / left)
    assert plan("hole").ideal == plan("kill").ideal


def test_sources_behind_one_bottleneck_have_its_rate():
    made = plan("shared")
    assert made.alone("s1") == made.alone("s2") == pytest.approx(200e6 / 8 * SHARE)
    assert made.best == "s1"
    assert made.ideal == pytest.approx((1 << 30) / made.alone("s1"), rel=0.01)


def test_kinds_alternate_in_mixed():
    assert plan("mixed").schemes == {"s1": "ftp", "s2": "https", "s3": "ftp", "s4": "https"}


def test_cross_traffic_is_the_same_in_each_run_and_lasts():
    assert plan("cross").timeline == plan("cross").timeline
    assert max(at for at, _ in plan("cross").timeline) > 5 * plan("cross").ideal
