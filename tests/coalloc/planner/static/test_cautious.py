"""Plans for uncertain capacities: safe relays are used, others are not, and each plan has a proof."""

from dataclasses import replace
from fractions import Fraction
from math import inf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coalloc.errors import UsageError
from coalloc.planner import Demand, File, Network, least_makespan, plan
from coalloc.planner.certificate import check, faults
from coalloc.planner.network import Host, Link, LinkKey
from coalloc.planner.results import PlannedPath
from coalloc.planner.uncertainty import Caution
from coalloc.util import human
from tests.coalloc.planner.networks import demands, line, networks

MB, DAY = 10**6, 86400.0
SLOW = line(x_t=1 * MB, x_y=5 * MB, y_t=5 * MB)
EVEN = line(x_t=10 * MB, x_y=3 * MB, y_t=3 * MB)


def aged(network: Network, age: float) -> Network:
    return replace(network, links={key: replace(link, age=age) for key, link in network.links.items()})


def bounded(network: Network, factor: int) -> Network:
    links = {
        key: replace(link, bounds=(link.capacity // factor, link.capacity * factor))
        for key, link in network.links.items()
    }
    return replace(network, links=links)


def file(size: int, **more: float) -> Demand:
    return Demand((File("a", size, ("x",), ("t",), **more),))


def test_a_large_gain_is_taken_though_rates_are_old_and_the_plan_says_how_probable_it_is():
    network, demand = aged(SLOW, 5 * DAY), file(10**10)
    found = plan(network, demand)
    assert found.direct == 10**10 / MB
    assert found.makespan < found.direct / 2
    assert found.chance is not None
    assert 0.9 < found.chance <= 1
    assert found.reason.endswith(f"relays are faster with a probability of {human.probability(found.chance)}")
    check(network, demand, found)


def test_without_uncertainty_nothing_changes():
    found = plan(SLOW, file(10**10))
    assert found == least_makespan(SLOW, file(10**10))
    assert found.chance is None
    assert plan(aged(SLOW, 0.0), file(10**10)) == found


@pytest.mark.parametrize("size", [2 * MB, 10**10])
def test_short_collections_with_doubtful_rates_go_straight(size: int):
    network, demand = bounded(EVEN, 2), file(size)
    found = plan(network, demand)
    assert (found.method == "direct") == (size == 2 * MB)
    if found.method == "direct":
        assert "which is not worth the risk" in found.reason
        assert found.certificate.caution == Caution(0, inf)
        assert found.makespan == found.direct
    check(network, demand, found)


def test_relays_carry_less_the_less_their_rates_are_known():
    shares = []
    for age in (0.0, DAY, 25 * DAY):
        found = plan(aged(EVEN, age), file(10**11))
        shares.append(sum(path.bytes for path in found.paths if len(path.hosts) > 2))
    assert shares[0] > shares[1] > shares[2]


def test_rates_that_may_be_anything_are_not_relied_on():
    network, demand = bounded(line(x_t=10 * MB, x_y=11 * MB, y_t=11 * MB), 10**6), file(10**11)
    found = plan(network, demand)
    assert found.method == "direct"
    assert found.chance is not None
    check(network, demand, found)


def test_a_deadline_that_only_the_fastest_plan_meets_is_met():
    network = aged(EVEN, DAY)
    cautious, fastest = plan(network, file(10**10)), least_makespan(network, file(10**10))
    assert cautious.makespan > fastest.makespan
    due = float((cautious.makespan + fastest.makespan) / 2)
    assert plan(network, file(10**10, deadline=due)).makespan == fastest.makespan


def test_a_deadline_that_the_safest_plan_misses_is_met_by_the_next_safest_with_its_chance():
    network, demand = aged(EVEN, DAY), file(10**10)
    usual, fastest = plan(network, demand), least_makespan(network, demand)
    assert usual.makespan > fastest.makespan
    due = float((usual.makespan + fastest.makespan) / 2)
    found = plan(network, file(10**10, deadline=due))
    assert fastest.makespan <= found.makespan <= due
    assert found.chance is not None
    assert human.probability(found.chance) in found.reason
    check(network, demand, found)
    with pytest.raises(UsageError, match="cannot arrive in time"):
        plan(network, file(10**10, deadline=float(fastest.makespan) / 2))


def test_a_small_file_that_needs_relays_does_not_put_others_at_risk():
    network = bounded(line(x_t=10 * MB, x_y=11 * MB, y_t=11 * MB, z_y=5 * MB), 10**6)
    large, small = File("a", 10**11, ("x",), ("t",)), File("b", MB, ("z",), ("t",))
    demand = Demand((large, small))
    assert plan(network, Demand((large,))).method == "direct"
    found = plan(network, demand)
    assert {path.file: path.hosts for path in found.paths} == {"a": ("x", "t"), "b": ("z", "y", "t")}
    assert found.makespan == 10**4
    assert found.direct is None
    assert found.chance is not None
    assert "only files without a direct path use relays" in found.reason
    check(network, demand, found)
    astray = replace(found, paths=(PlannedPath("a", ("x", "y", "t"), 10**11), *found.paths[1:]))
    assert "which do not relay" in "; ".join(faults(network, demand, astray))


def test_files_that_have_a_direct_path_use_relays_if_that_is_safe():
    network = aged(line(x_t=1 * MB, x_y=5 * MB, y_t=5 * MB, z_y=5 * MB), DAY)
    demand = Demand((File("a", 10**10, ("x",), ("t",)), File("b", MB, ("z",), ("t",))))
    found = plan(network, demand)
    assert ("x", "y", "t") in {path.hosts for path in found.paths}
    assert "relays only for files without a direct path take" in found.reason
    assert found.chance is not None
    check(network, demand, found)


def test_relays_that_gain_too_little_are_not_called_a_risk():
    network = aged(line(x_t=100 * MB, x_y=2 * MB, y_t=2 * MB), 60.0)
    found = plan(network, file(10**11))
    assert found.method == "direct"
    assert found.reason.endswith("with a probability of over 99 %, but would gain too little")


def test_what_relays_cost_is_left_out_of_the_budget_for_direct_paths():
    """File b needs a relay, which costs 1; the rest pays for 8.5 of the 10 GB that a sends over the better link."""
    unsure = (11, 11 * MB * 10**6)
    links = (
        Link(LinkKey("x", "t"), 10 * MB, price=1e-9),
        Link(LinkKey("w", "t"), MB),
        Link(LinkKey("x", "y"), 11 * MB, unsure),
        Link(LinkKey("y", "t"), 11 * MB, unsure),
        Link(LinkKey("z", "y"), 5 * MB, price=1e-9),
    )
    network = Network.of(tuple(map(Host, "xywzt")), links)
    files = (File("a", 10**10, ("x", "w"), ("t",)), File("b", 10**9, ("z",), ("t",)))
    demand = Demand(files, budget=9.5)
    found = plan(network, demand)
    check(network, demand, found)
    assert not found.flows.get(LinkKey("x", "y"))
    assert float(found.flows[LinkKey("x", "t")]) == pytest.approx(8.5e9, rel=1e-6)
    assert found.chance is not None


def test_relays_that_are_needed_are_used():
    network, demand = aged(line(x_y=5 * MB, y_t=5 * MB), 5 * DAY), file(10**10)
    found = plan(network, demand)
    assert (found.direct, found.chance) == (None, None)
    check(network, demand, found)


def test_a_cautious_plan_that_lies_is_refused():
    network, demand = aged(EVEN, DAY), file(10**10)
    found = plan(network, demand)
    late = replace(found, makespan=found.makespan * Fraction(11, 10))
    assert "its flows take" in "; ".join(faults(network, demand, late))
    bold = replace(found, certificate=replace(found.certificate, caution=None))
    assert "are proved to be needed" in "; ".join(faults(network, demand, bold))
    straight = replace(found, certificate=replace(found.certificate, caution=Caution(0, inf)))
    assert "which do not relay" in "; ".join(faults(network, demand, straight))


@st.composite
def doubtful(draw) -> Network:
    """Draw a network in which some links have bounds or ages."""
    network = draw(networks(sets=draw(st.booleans())))
    links = {}
    for key, link in network.links.items():
        low, high = draw(st.integers(0, link.capacity)), draw(st.integers(0, 3))
        bounds = draw(st.sampled_from((None, (low, link.capacity * (1 + high)))))
        links[key] = replace(link, bounds=bounds, age=draw(st.sampled_from((None, 0.0, 60.0, 9e5))))
    return replace(network, links=links)


def _reaches(network: Network, file: File, sink: str) -> bool:
    pairs = {(key.source, key.sink) for key in network.links}
    return any(holder == sink or (holder, sink) in pairs for holder in file.holders)


@settings(deadline=None)
@given(st.data())
def test_every_plan_for_uncertain_capacities_has_a_proof(data):
    network = data.draw(doubtful())
    demand = data.draw(demands(network, disks=data.draw(st.booleans())))
    reached = [name for name in network.hosts if all(_reaches(network, file, name) for file in demand.files)]
    also = data.draw(st.lists(st.sampled_from(reached), unique=True)) if reached else []
    files = tuple(replace(file, destinations=tuple(dict.fromkeys(("t", *also)))) for file in demand.files)
    demand = Demand(files)
    found = plan(network, demand)
    check(network, demand, found)
    assert found.direct is None or found.makespan <= found.direct
    assert found.chance is None or 0 <= found.chance <= 1
