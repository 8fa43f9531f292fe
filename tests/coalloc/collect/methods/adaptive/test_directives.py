"""Assignments of bytes to pairs of hosts, on the example of the Confluence paper (1 and 3.4)."""

from collections import Counter

import pytest

from coalloc.collect.methods.adaptive.directives import Lot, directives, reachable
from coalloc.planner import Host, Link, LinkKey, Network

MB = 1_000_000
X, Y = Lot(("x",), "", "t"), Lot(("y",), "", "t")


def network(*links: tuple[str, str, float], relays: bool = True) -> Network:
    names = sorted({name for link in links for name in link[:2]})
    hosts = tuple(Host(name, relays=relays) for name in names)
    return Network.of(hosts, tuple(Link(LinkKey(a, b), round(rate * MB)) for a, b, rate in links))


PAPER = network(("x", "t", 1), ("y", "t", 5), ("x", "y", 2))


def test_the_example_of_the_paper():
    plan = directives(PAPER, {X: 1000 * MB, Y: 1000 * MB})
    assert plan.seconds == pytest.approx(1000 / 3)
    assert plan.direct_seconds == 1000
    assert not plan.is_direct
    third = 1000 * MB / 3
    assert plan.left["x", "t"] == pytest.approx({"t": third, "y": 2 * third}, abs=1)
    assert plan.left["y", "t"] == pytest.approx({"t": 5 * third}, abs=1)
    rates = {("x", "t"): 1 * MB, ("x", "y"): 2 * MB, ("y", "t"): 5 * MB}
    assert plan.rates == pytest.approx(rates)


def test_plan_is_direct_if_relays_gain_next_to_nothing():
    plan = directives(network(("x", "t", 1), ("y", "t", 1), ("x", "y", 1)), {X: 1030 * MB, Y: 1000 * MB})
    assert plan.is_direct
    assert plan.seconds == plan.direct_seconds == 1030
    assert plan.left == {("x", "t"): Counter(t=1030 * MB), ("y", "t"): Counter(t=1000 * MB)}


def test_pairs_are_taken_up_on_the_way_only_where_they_gain_much():
    """Capacities have only risen by then, for pairs that were lucky."""
    net, straight = network(("x", "t", 1), ("y", "t", 1), ("x", "y", 1)), {("x", "t"), ("y", "t")}
    some, much = ({X: size * MB, Y: 1000 * MB} for size in (1150, 1300))
    assert [directives(net, some, used).is_direct for used in ((), straight, {*straight, ("x", "y")})] == [0, 1, 0]
    assert not directives(net, much, straight).is_direct


def test_blocks_that_are_held_twice_are_sent_from_where_that_is_faster():
    """The path from y back has become slow, and x has another one: y0 -> x0 carries blocks back."""
    staged = Lot(("x",), "y", "t")
    plan = directives(network(("x", "t", 9), ("y", "t", 1), ("x", "y", 2)), {staged: 100 * MB})
    assert plan.seconds == pytest.approx(10)
    assert plan.recalled == pytest.approx({staged: 90 * MB}, abs=1)
    assert plan.left == {
        ("x", "t"): pytest.approx({"t": 90 * MB}, abs=1),
        ("y", "t"): pytest.approx({"t": 10 * MB}, abs=1),
    }


def test_blocks_stay_where_they_are_unless_moving_them_gains_enough():
    staged = Lot(("x",), "y", "t")
    plan = directives(network(("x", "t", 0.02), ("y", "t", 1), ("x", "y", 2)), {staged: 100 * MB})
    assert not any(plan.recalled.values())
    assert plan.left == {("y", "t"): Counter(t=100 * MB)}


def test_staged_blocks_without_an_origin_are_sent_from_their_relay():
    plan = directives(PAPER, {Lot((), "y", "t"): 10 * MB})
    assert plan.left == {("y", "t"): Counter(t=10 * MB)}


def test_replicas_share_a_file():
    plan = directives(network(("x", "t", 1), ("y", "t", 3)), {Lot(("x", "y"), "", "t"): 100 * MB})
    assert plan.seconds == 25
    assert plan.left == {("x", "t"): Counter(t=25 * MB), ("y", "t"): Counter(t=75 * MB)}


def test_unreachable_files_are_known_in_advance():
    assert reachable(PAPER, {X: 1, Y: 2}) == {X: 1, Y: 2}
    way = network(("x", "y", 2), ("y", "t", 5))
    assert reachable(way, {X: 1, Y: 2}) == {X: 1, Y: 2}
    assert reachable(network(("x", "y", 2), ("y", "t", 5), relays=False), {X: 1, Y: 2}) == {Y: 2}
    assert reachable(network(("x", "y", 2), ("y", "t", 0)), {X: 1, Y: 2}) == {}


def test_plan_for_no_bytes_takes_no_time():
    assert directives(PAPER, {}).seconds == 0
