"""Fair rates: some computed by hand, and fairness on any network; compiled and plain code agree."""

from math import inf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coalloc.collect.simulation.fluid import Fluid
from coalloc.collect.simulation.sharing import FlowLinkMatrix, share
from coalloc.collect.simulation.underlay import FluidStream, Rate, Underlay
from predictors.compiled import compiled, floats, integers
from tests.support.effort import effort


def rates(routes, capacities, shares=None, fast=False):
    """Return the rates of flows over links, both numbered."""
    flows, links = len(routes), len(capacities)
    found = floats([0.0] * flows, fast)
    zeros = [integers([0] * count, fast) for count in (links, links, flows)]
    (compiled(share) if fast else share)(
        FlowLinkMatrix.of(routes, links, fast),
        integers(range(flows), fast),
        floats(capacities, fast),
        floats(shares or [1.0] * flows, fast),
        found,
        floats([0.0] * links, fast),
        floats([0.0] * links, fast),
        *zeros,
    )
    return list(found)


@pytest.mark.parametrize("fast", [False, True])
def test_a_flow_that_is_held_back_elsewhere_leaves_its_share_to_others(fast):
    assert rates([{0: 1}, {0: 1}, {0: 1, 1: 1}, {1: 1}, {2: 1, 1: 1}], [9, 8, 1], fast=fast) == [3, 3, 3, 4, 1]


def test_a_flow_may_take_more_than_its_share_or_weigh_more():
    assert rates([{0: 1}, {0: 1}], [9], shares=[1, 2]) == [3, 6]
    assert rates([{0: 2}, {0: 1}], [9]) == [3, 3]


def test_exhausted_link_gives_rate_0_to_all_its_flows():
    assert rates([{0: 1}, {0: 1, 1: 1}, {1: 1}], [0, 5]) == [0, 0, 5]


@st.composite
def networks(draw):
    """Draw (routes, capacities, shares) with ties, and with links of capacity 0."""
    links = draw(st.integers(1, 6))
    weights = st.sampled_from([1.0, 1.0, 0.5, 2.0])
    route = st.dictionaries(st.integers(0, links - 1), weights, min_size=1)
    routes = draw(st.lists(route, min_size=1, max_size=12))
    capacities = draw(st.lists(st.sampled_from([0.0, 1.0, 2.0, 3.0, 10.0, 1e8 / 3]), min_size=links, max_size=links))
    return (
        routes,
        capacities,
        draw(st.lists(st.sampled_from([1.0, 0.3, 2.0]), min_size=len(routes), max_size=len(routes))),
    )


@settings(max_examples=effort(60, 300))
@given(networks())
def test_no_flow_can_have_more_unless_a_poorer_one_has_less(network):
    routes, capacities, shares = network
    found = rates(*network)
    assert rates(*network, fast=True) == pytest.approx(found, rel=1e-12, abs=1e-9)
    used = [0.0] * len(capacities)
    for route, rate in zip(routes, found, strict=True):
        for link, weight in route.items():
            used[link] += weight * rate
    full = [use >= capacity * (1 - 1e-9) - 1e-6 for use, capacity in zip(used, capacities, strict=True)]
    assert all(use <= capacity * (1 + 1e-9) + 1e-6 for use, capacity in zip(used, capacities, strict=True))
    levels = [rate / part for rate, part in zip(found, shares, strict=True)]
    richest = [
        max((level for level, route in zip(levels, routes, strict=True) if link in route), default=inf)
        for link in range(len(capacities))
    ]
    for level, route in zip(levels, routes, strict=True):
        assert any(full[link] and level >= richest[link] * (1 - 1e-9) - 1e-6 for link in route)


def test_steady_streams_take_theirs_first_and_others_share_the_rest():
    streams = (FluidStream("udp", {"core": 1}, rate=4.0), FluidStream("tcp", {"core": 1}))
    fluid = Fluid(Underlay({"core": 10}, {("a", "t"): {"core": 1}}, streams), fast=False)
    fluid.begin(("a", "t"), 6)
    assert fluid.soonest == 2
    fluid.change(Rate(0, "udp", 8.0))
    assert fluid.soonest == 6
    assert fluid.advance(6) == [("a", "t")]
    assert (fluid.moved(("a", "t")), fluid.moved("tcp")) == (6, 6)
    fluid.change(Rate(0, "udp", 20.0))
    fluid.begin(("a", "t"), 6)
    assert fluid.soonest == inf
