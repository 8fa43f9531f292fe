"""Timetables: they move everything in the fewest steps at the least cost, and an independent checker agrees."""

from collections import Counter
from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coalloc.errors import UsageError
from coalloc.planner.network import Demand, File, Host, Isp, Link, LinkKey, Network
from coalloc.planner.solvers.maxflow import SCIPY
from coalloc.planner.timeline.check import faults
from coalloc.planner.timeline.steps import Units
from coalloc.planner.timeline.timetable import Timeline, TimetableCertificate, timeline
from tests.coalloc.planner.networks import collections, line

SECOND = Units(Fraction(1), 1)


def demand(**sizes: int) -> Demand:
    """A file at each host, wanted at D."""
    return Demand(tuple(File(f"of {host}", size, (host,), ("D",)) for host, size in sizes.items()))


PAPER = line(S1_D=7, S2_D=1, S3_D=4, S2_S1=4, S2_S3=1, S1_S2=1, S1_S3=1, S3_S1=1, S3_S2=1)
"""The network of figures 1 to 3: S2's link to D is narrow, those of S1 and S3 are not."""
WANTED = demand(S1=12, S2=15, S3=14)


def test_the_papers_example_takes_four_steps_with_help_of_other_hosts():
    found = timeline(PAPER, WANTED, SECOND)
    assert found.count == found.makespan == 4
    assert sum(path.units for path in found.paths) == 41
    assert {path.hosts for path in found.paths} >= {("S1", "D"), ("S2", "D"), ("S2", "S1", "D"), ("S3", "D")}
    assert faults(found.certify(), PAPER, WANTED, SECOND) == []


def test_alone_the_narrow_way_would_take_fifteen():
    assert timeline(line(S1_D=7, S2_D=1, S3_D=4), WANTED, SECOND).count == 15


def test_equal_timetables_are_ranked_by_transfers_then_link_width_then_time():
    network = line(A_D=2, A_B=9, A_C=9, B_D=2, C_D=3)
    assert {path.hosts for path in timeline(network, demand(A=2), SECOND).paths} == {("A", "D")}
    two = timeline(network, demand(A=5), SECOND)
    assert {path.hosts for path in two.paths} == {("A", "D"), ("A", "C", "D")}
    assert [path.start for path in two.paths if len(path.hosts) == 3] == [0]


def test_a_path_starts_where_the_index_is_smallest_and_goes_on_there():
    network = line(B_D=2, A_D=2, B_A=2)
    paths = timeline(network, demand(B=6, A=2), SECOND).paths
    assert paths[0].hosts[0] == "B"
    assert [path.hosts[0] for path in paths] == sorted((path.hosts[0] for path in paths), reverse=True)


def test_timetable_of_the_paper_ignores_the_limit_of_the_destination():
    network = Network.of(
        (Host("A"), Host("B"), Host("D", (Isp("", None, 10),))),
        (Link(LinkKey("A", "D"), 10), Link(LinkKey("B", "D"), 10)),
    )
    files = demand(A=50, B=50)
    assert timeline(network, files, SECOND, limits=False).count == 5
    assert timeline(network, files, SECOND).count == 10


def test_files_available_later_are_sent_later():
    files = Demand((File("soon", 4, ("A",), ("D",)), File("late", 4, ("A",), ("D",), available=6.5)))
    network = line(A_D=2)
    found = timeline(network, files, SECOND)
    assert found.count == 9
    assert {path.start for path in found.paths if path.parts[0].file == "late"} == {7, 8}
    assert faults(found.certify(), network, files, SECOND) == []


def test_a_file_that_two_hosts_hold_comes_from_both():
    files = Demand((File("twice", 100, ("A", "B"), ("D",)),))
    network = line(A_D=6, B_D=4)
    found = timeline(network, files, SECOND)
    assert found.count == 10
    parts = sorted((part for path in found.paths for part in path.parts), key=lambda part: part.start)
    assert [part.start for part in parts] == [0, *(part.end for part in parts[:-1])]
    assert parts[-1].end == 100


def test_two_providers_of_one_host_are_two_ways_in():
    hosts = (Host("A"), Host("D", (Isp("x", None, 3), Isp("y", None, 4))))
    links = tuple(Link(LinkKey("A", "D", "", isp), 9) for isp in "xy")
    assert timeline(Network.of(hosts, links), demand(A=14), SECOND).count == 2


def test_unreachable_destination_is_reported():
    with pytest.raises(UsageError, match="no data can get from B to D"):
        timeline(line(A_D=1, D_B=1), demand(A=1, B=1), SECOND)


def test_a_timetable_has_one_destination():
    with pytest.raises(UsageError, match="one destination, not 2"):
        timeline(line(A_D=1, A_B=1), Demand((File("f", 1, ("A",), ("B", "D")),)))


def test_units_suit_the_demand():
    found = timeline(line(A_D=10**8, B_D=10**5, A_B=10**6), demand(A=10**10, B=10**5))
    assert 50 <= found.count <= 250
    assert float(found.makespan) == pytest.approx(100, rel=0.05)


@settings(deadline=None)
@given(collections(), st.booleans(), st.sampled_from((1, 3)), st.sampled_from((1, 2)))
def test_every_timetable_holds(both: tuple[Network, Demand], limits: bool, size: int, seconds: int):
    network, files = both
    units = Units(Fraction(seconds), size)
    try:
        found = timeline(network, files, units, limits=limits)
    except UsageError:
        return
    assert faults(found.certify(), network, files, units, limits=limits) == []
    by_scipy = timeline(network, files, units, limits=limits, backend=SCIPY)
    assert faults(by_scipy.certify(), network, files, units, limits=limits) == []
    assert cost(by_scipy) == cost(found)
    whole(found, files)


def cost(found: Timeline) -> int:
    return int((found.expansion.graph.costs * found.flow).sum())


def whole(found: Timeline, files: Demand) -> None:
    """Check that paths move every byte once, each in time."""
    seen: Counter[tuple[str, int]] = Counter()
    ready = {file.name: file.available / float(found.steps.units.seconds) for file in files.files}
    for path in found.paths:
        assert sum(part.end - part.start for part in path.parts) <= path.units * found.steps.units.bytes
        assert path.start + len(path.hosts) - 1 <= found.count
        assert len(set(path.hosts)) == len(path.hosts)
        for part in path.parts:
            assert path.start >= ready[part.file]
            seen.update((part.file, byte) for byte in range(part.start, part.end))
    assert seen == Counter((file.name, byte) for file in files.files for byte in range(file.size))


def corrupted(good: TimetableCertificate) -> dict[str, TimetableCertificate]:
    (step, key), units = next(iter(good.moved.items()))
    node = next(node for node, price in good.prices.items() if price)
    dear = {**good.prices, ("host", "D", "", good.steps): good.prices["host", "D", "", good.steps] + 10**9}
    return {
        "less arrives": replace(good, moved={**good.moved, (step, key): units - 1}),
        "more than fits": replace(good, moved={**good.moved, (step, key): 10**6}),
        "over no link": replace(good, moved={**good.moved, (step, LinkKey("D", "S1")): 1}),
        "in no step": replace(good, moved={**good.moved, (99, key): 1}),
        "no price": replace(good, prices={n: p for n, p in good.prices.items() if n != node}),
        "wrong prices": replace(good, prices=dear),
        "no cut": replace(good, cut=frozenset()),
        "a cut of all": replace(good, cut=frozenset(good.prices)),
        "a step more": replace(good, steps=good.steps + 1),
        "a step less": replace(good, steps=good.steps - 1),
    }


@pytest.mark.parametrize("how", corrupted(timeline(PAPER, WANTED, SECOND).certify()))
def test_corrupted_timetables_are_refused(how: str):
    bad = corrupted(timeline(PAPER, WANTED, SECOND).certify())[how]
    assert faults(bad, PAPER, WANTED, SECOND) != []


def test_more_expensive_flow_is_refused():
    network, files = line(A_D=2, A_B=2, B_D=2), demand(A=2)
    good = timeline(network, files, SECOND).certify()
    assert good.steps == 1
    around = {(0, LinkKey("A", "B")): 2, (1, LinkKey("B", "D")): 2}
    assert faults(replace(good, moved=around, steps=2), network, files, SECOND) != []
