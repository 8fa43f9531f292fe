"""Small versions of both papers' experiments: gains and costs; the pages have a marker for each table."""

from importlib.util import find_spec
from itertools import groupby
from math import inf

import pytest

from coalloc.collect.methods.actions import Piece, Send
from coalloc.collect.simulation import SimulatedHop, SimulationRecord
from coalloc.planner import Demand, File
from tests.benchmarks.collecting import cheng, cheng_tables, confluence, confluence_tables
from tests.benchmarks.collecting.__main__ import DOCS
from tests.benchmarks.collecting.confluence import NONE
from tests.benchmarks.collecting.crosscheck import Point, table_of
from tests.benchmarks.collecting.results import keep, kept, run_all
from tests.benchmarks.collecting.sinks import CLOUD
from tests.benchmarks.paper.page import filled

FLOOR = 350e6 / 312_500
"""Seconds that the destination's link needs for all files."""


def collected(method: str, load: int, **options) -> cheng.Run:
    return cheng.run(cheng.Case(method, load, seed=1, probes=1, **options))


@pytest.mark.parametrize("seeds", [1, 5])
def test_each_case_runs_once_beside_those_of_its_scenario_in_as_many_networks_as_asked_for(seeds: int):
    cases = cheng.cases(seeds)
    scenarios = [scenario for scenario, _ in groupby((case.seed, case.load, case.senders) for case in cases)]
    assert len(set(cases)) == len(cases)
    assert len(set(scenarios)) == len(scenarios)
    assert {case.seed for case in cases if case.method == "adaptive"} == set(range(1, seeds + 1))
    assert {case.seed for case in cases} == set(range(1, seeds * cheng.MANY + 1))
    assert len({case.seed for case in cases if case.told >= 0}) == min(seeds, cheng.FEWER)


def test_no_method_is_faster_than_the_link_of_the_destination():
    for method in ("all-at-once", "path-sync-95", "path-delay", "adaptive"):
        run = collected(method, 0)
        assert FLOOR * 0.999 <= run.seconds <= FLOOR * 1.06
        assert run.background == 1.0


def test_coordination_pays_where_peering_points_are_congested():
    direct, best, coordinated = (collected(name, 120) for name in ("all-at-once", "best-path", "path-sync-95"))
    assert direct.seconds > 3 * coordinated.seconds
    assert best.seconds > 1.3 * coordinated.seconds
    assert direct.storage == 1 <= coordinated.storage < 1.05
    assert 0.8 < coordinated.background < direct.background <= 1


def test_uneven_tcp_costs_barriers_time():
    even, uneven = (collected("path-sync-100", 24, unevenness=unevenness) for unevenness in (0.0, 0.5))
    assert uneven.seconds > even.seconds


def test_hosts_store_own_data_until_acknowledged_and_staged_data_in_addition():
    """A host stores its own data until they are acknowledged, and staged data in addition."""
    demand = Demand((File("x", 100, ("a",), ("t",)), File("y", 300, ("b",), ("t",))))
    sent = (
        Send(1, "a", "t", Piece("x", 0, 60)),
        Send(2, "b", "a", Piece("y", 0, 90)),
        Send(3, "a", "t", Piece("x", 60, 100)),
    )
    hops = [SimulatedHop(send, 0, at, "arrived") for send, at in zip(sent, (1, 2, 3), strict=True)]
    early = SimulationRecord("done", 9, hops, {"a": [(0.5, 90), (5.0, 0)]}, {})
    late = SimulationRecord("done", 9, hops, {"a": [(1.0, 90), (5.0, 0)]}, {})
    assert cheng.storage(demand, early) == (190 + 300) / 400
    assert cheng.storage(demand, late) == (130 + 300) / 400


def test_a_sink_gains_by_relays_and_knows_it_only_by_planning_again():
    case = confluence.Case("planetlab", 10, 1, "h00")
    runs = [confluence.run(each) for each in (case, case.direct, case._replace(period=NONE))]
    gains = confluence_tables.Runs(runs).gains([case, case._replace(period=NONE)])
    assert confluence_tables.perfect(case) > 0.3
    assert gains[0] > 0.3
    assert gains[0] > gains[1]


def test_a_pool_of_few_connections_takes_longer():
    case = confluence.Case("planetlab", 10, 1, "h01").direct
    assert confluence.run(case).seconds <= confluence.run(case._replace(pool=3)).seconds


def test_runs_are_kept_as_they_were(tmp_path):
    runs = list(run_all(confluence.run, [confluence.Case("planetlab", 4, 1, "h00", drift=0.0)]))
    keep(tmp_path / "runs.json", runs)
    assert kept(tmp_path / "runs.json", confluence.Case, confluence.Run) == runs


@pytest.mark.skipif(not CLOUD.exists(), reason=f"{CLOUD} is not there")
def test_the_pages_have_a_place_for_each_table():
    some = [
        cheng.Run(cheng.Case(method, 24, seed), 1000.0 + seed, 1.0, 0.9) for method in cheng.METHODS for seed in (1, 2)
    ]
    some += [run._replace(case=run.case._replace(unevenness=cheng.UNEVEN), seconds=2000.0) for run in some]
    made = cheng_tables.tables(cheng_tables.Runs(some))
    assert "| 24 | 2.00 ± 0.01 |" in made["uneven"]
    page = filled((DOCS / "cheng.md").read_text(), {**made, "packets": ""}, "tests.benchmarks.collecting")
    assert made["figure 5b"] in page
    case = confluence.Case("planetlab", 25, 1, "h00")
    found = confluence_tables.Runs([confluence.Run(case, 75.0), confluence.Run(case.direct, 100.0)])
    made = confluence_tables.tables(found)
    assert "| 25 | 1 | 25 % (25 % to 25 %) | 100 % | 100 % |" in made["figure 9"]
    assert made["figure 9"] in filled((DOCS / "confluence.md").read_text(), made, "tests.benchmarks.collecting")


def test_table_shows_makespans_relative_to_direct():
    shown = table_of([Point("all-at-once", 24, 100.0, 120.0), Point("adaptive", 24, 50.0, inf)])
    assert "| 24 | all-at-once | 100 | 120 | 1.20 | 1.00 | 1.00 |" in shown
    assert "| 24 | adaptive | 50 | inf | inf | 2.00 | 0.00 |" in shown


@pytest.mark.skipif(not find_spec("ns"), reason="ns-3 is not installed: pip install 'coget[bench]' brings it")
def test_without_traffic_tcp_is_nearly_a_fluid():
    from tests.benchmarks.collecting.crosscheck import compared

    point = compared("all-at-once", 0, part=100)
    assert point.packets == pytest.approx(point.fluid, rel=0.15)
