"""The network for a plan: from the user's settings, measurements and guesses."""

import pytest

from coalloc.collect.expected_network import UNKNOWN, guessed, inward, is_known, labelled
from coalloc.collect.values import HERE
from coalloc.errors import UsageError
from coalloc.model.forecasts import Estimate
from coalloc.planner.documents.scenario import Scenario
from coalloc.planner.network import Demand, File, Host, Isp, Link, LinkKey, Network, Shared

A, B = "ftp://a.example", "ftp://b.example:2811"
LINKS = (Link(LinkKey("a", "desk"), 10), Link(LinkKey("a", "b"), 20))
URLS = {"a": "ftp://A.example:21/data", "b": B}


def scenario(*others, shared=()):
    hosts = (Host("a"), Host("b", storage=5), *map(Host, ("desk", *others)))
    return Scenario(Network.of(hosts, LINKS, shared), urls=URLS)


def test_hosts_are_called_by_their_servers_and_the_one_without_is_here():
    both = Shared("both", 30, {LINKS[0].key: 1.0})
    found = labelled(scenario(shared=(both,)))
    assert set(found.network.hosts) == {A, B, HERE}
    assert {key: link.capacity for key, link in found.network.links.items()} == {
        LinkKey(A, HERE): 10,
        LinkKey(A, B): 20,
    }
    assert found.network.hosts[B].storage == 5
    assert found.network.shared == (Shared("both", 30, {LinkKey(A, HERE): 1.0}),)
    assert found.urls == {A: URLS["a"], B: URLS["b"]}


def test_scenario_with_several_hosts_without_a_server_needs_one_named_here():
    with pytest.raises(UsageError, match="desk and lab"):
        labelled(scenario("lab"))
    assert set(labelled(scenario(HERE)).network.hosts) == {A, B, HERE}


def test_unknown_links_are_assumed_equal_and_the_destination_does_not_relay():
    network = guessed(Network({}, {}), [A, B], HERE, complete=False)
    assert set(network.hosts) == {A, B, HERE}
    assert {link.capacity for link in network.links.values()} == {UNKNOWN}
    assert {tuple(key[:2]) for key in network.links} == {(A, B), (B, A), (A, HERE), (B, HERE)}
    assert all(host.isps == (Isp("", UNKNOWN, UNKNOWN),) for host in network.hosts.values())
    assert [name for name, host in network.hosts.items() if not host.relays] == [HERE]


def test_guesses_stand_beside_what_is_known():
    known = inward({A: Estimate(rate=40.0, bounds=(30.0, 50.0)), B: Estimate()})
    network = guessed(known, [A, B], HERE, complete=False)
    assert network.links[LinkKey(A, HERE)] == Link(LinkKey(A, HERE), 40, (30, 50))
    assert network.links[LinkKey(B, HERE)].capacity == 40


def test_a_network_of_the_users_has_no_link_that_it_does_not_name_but_to_the_destination():
    given = labelled(scenario()).network
    network = guessed(given, [A, B, "ftp://c.example"], HERE, complete=True)
    assert {tuple(key[:2]) for key in network.links} == {
        (A, HERE),
        (A, B),
        (B, HERE),
        ("ftp://c.example", HERE),
    }
    assert network.hosts[A].isps == ()


def test_network_is_known_if_each_file_has_a_measured_link():
    known = inward({A: Estimate(rate=40.0)})
    assert is_known(known, Demand((File("x", 1, (A, B), (HERE,)),)))
    assert not is_known(known, Demand((File("x", 1, (B,), (HERE,)),)))
