"""Deadlines: whether they can be met, and the bottleneck if not."""

from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coalloc.errors import UsageError
from coalloc.planner import least_makespan, plan
from coalloc.planner.certificate import bound
from coalloc.planner.network import Demand, File, Host, Link, LinkKey, Network
from coalloc.planner.results import Limit
from coalloc.planner.static.deadline import refusal
from tests.coalloc.planner.networks import demands, networks

MB = 10**6
NETWORK = Network.of(
    (Host("x"), Host("y"), Host("t"), Host("alone")),
    (Link(LinkKey("x", "y"), 3 * MB), Link(LinkKey("y", "t"), 2 * MB), Link(LinkKey("x", "t"), MB)),
)
DEMAND = Demand((File("a", 30 * MB, ("x",), ("t",)),))


def test_it_fits():
    assert refusal(NETWORK, DEMAND, 10) is None
    assert refusal(NETWORK, DEMAND, 1e30) is None


def test_refusal_names_the_bottleneck():
    found = refusal(NETWORK, DEMAND, 8.5)
    assert found is not None
    assert found.short == 4.5 * MB
    assert found.prices == {Limit("link", LinkKey("y", "t")): 1, Limit("link", LinkKey("x", "t")): 1}
    assert found.reason == "4500000 bytes cannot pass all links into t in 8.5 s"


def test_unreachable_file_meets_no_deadline():
    demand = Demand((File("a", 5, ("alone",), ("t",)),))
    found = refusal(NETWORK, demand, 1e9)
    assert found is not None
    assert (found.short, found.reason) == (5, "5 bytes cannot reach t at all in 1000000000 s")


def due(seconds: float, *others: File) -> Demand:
    return Demand((replace(DEMAND.files[0], deadline=seconds), *others))


def test_plans_keep_deadlines():
    assert plan(NETWORK, due(10)).makespan == 10
    with pytest.raises(UsageError, match="a cannot arrive in time: 3000000 bytes cannot pass all links"):
        plan(NETWORK, due(9))
    with pytest.raises(UsageError, match="a takes 20 s together with all others, not 10 s"):
        plan(NETWORK, due(10, File("b", 30 * MB, ("x",), ("t",))))


@settings(deadline=None)
@given(st.data(), st.fractions(Fraction(1, 100), 2))
def test_a_time_is_refused_when_it_is_less_than_the_least(data, share):
    network = data.draw(networks())
    demand = data.draw(demands(network))
    seconds = least_makespan(network, demand).makespan * share
    found = refusal(network, demand, seconds)
    assert (found is not None) == (seconds > 0 and share < 1)
    if found is not None:
        assert 0 < found.short <= demand.size
        assert bound(network, demand, found.prices) > seconds
