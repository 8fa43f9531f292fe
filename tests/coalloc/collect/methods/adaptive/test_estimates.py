"""Estimated capacities of links, by the rules of Confluence 3.2 and 3.4."""

from random import Random

import pytest

from coalloc.collect.methods.adaptive.estimates import PEERS, STALE, Estimates, corrected, overlay
from coalloc.planner import Host, Isp, Link, LinkKey, Network

XT = ("x", "t")


def network(*links: Link, hosts: tuple[Host, ...] = (Host("x"), Host("t"))) -> Network:
    return Network.of(hosts, links)


@pytest.mark.parametrize(
    ("measured", "now"),
    [
        (95, 100),  # within the slack: as planned
        (94, 94),
        (50, 50),
        (10, 50),  # at most by half
        (0, 50),
        (130, 130),
    ],
)
def test_capacities_follow_what_is_measured(measured, now):
    assert corrected(100, measured, planned=100) == now


def test_estimate_stays_if_the_planned_rate_was_reached():
    assert corrected(100, measured=40, planned=40) == 100


def test_a_stalled_link_is_halved_each_time_and_can_be_planned_with():
    seen = Estimates(network(Link(LinkKey("x", "t"), 1000)))
    for _ in range(20):
        seen.measured(0.0, XT, 0.0, seen.capacity(XT))
    assert seen.network().links[LinkKey("x", "t")].capacity == 1


def test_estimate_begins_at_the_lower_bound():
    seen = Estimates(network(Link(LinkKey("x", "t"), 1000, bounds=(600, 1500))))
    assert seen.capacity(XT) == 600


def test_reduced_estimate_recovers_step_by_step_after_a_while():
    seen = Estimates(network(Link(LinkKey("x", "t"), 1000)))
    for at in (0.0, 1.0, 2.0):
        seen.measured(at, XT, 0.0, 1000)
    assert seen.capacity(XT) == 125
    believed = []
    for at in range(10, 150, 10):
        seen.rested(float(at), XT)
        believed.append(seen.capacity(XT))
    assert sorted(set(believed)) == [125, 250, 500, 1000]
    assert believed.index(250) == (2 + STALE) // 10  # the first look at 40 s


def test_each_isp_keeps_its_share_of_an_estimate():
    hosts = (Host("x", (Isp("a"), Isp("b"))), Host("t"))
    seen = Estimates(network(Link(LinkKey("x", "t", "a"), 300), Link(LinkKey("x", "t", "b"), 100), hosts=hosts))
    seen.measured(0.0, XT, 200.0, 400.0)
    assert [link.capacity for link in seen.network().links.values()] == [150, 50]


def test_access_is_not_narrower_than_what_went_over_it():
    hosts = (Host("x", (Isp(up=100),)), Host("y"), Host("t", (Isp(down=120),)))
    links = tuple(Link(LinkKey(name, "t"), 1000) for name in "xy")
    seen = Estimates(network(*links, hosts=hosts))
    seen.saw({("x", "t"): 90.0, ("y", "t"): 60.0})
    after = seen.network().hosts
    assert (after["x"].isps[0].up, after["t"].isps[0].down) == (100, 150)


def test_a_host_that_is_gone_takes_its_links_with_it():
    hosts = (Host("x"), Host("y"), Host("t"))
    seen = Estimates(network(Link(LinkKey("x", "t"), 1), Link(LinkKey("x", "y"), 1), hosts=hosts))
    seen.gone("y")
    assert list(seen.network().links) == [("x", "t", "", "")]
    assert list(seen.pairs) == [XT]


def test_in_large_networks_each_host_has_ten_random_peers_and_always_the_sink():
    names = [f"h{i}" for i in range(40)]
    links = tuple(Link(LinkKey(a, b), 1) for a in names for b in names if a != b)
    whole = Network.of(tuple(map(Host, names)), links)
    first, second = (overlay(whole, ["h0"], Random(seed)) for seed in (1, 2))
    assert first.links.keys() != second.links.keys()
    for name in names[1:]:
        peers = {key.sink for key in first.links if key.source == name}
        assert "h0" in peers
        assert len(peers) == PEERS + 1


def test_small_networks_are_whole():
    names = [f"h{i}" for i in range(PEERS + 1)]
    whole = Network.of(tuple(map(Host, names)), tuple(Link(LinkKey(a, b), 1) for a in names for b in names if a != b))
    assert overlay(whole, ["h0"], Random(0)).links == whole.links
