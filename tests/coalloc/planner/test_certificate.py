"""The checker finds faults in plans from any planner."""

from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from coalloc.planner import least_makespan
from coalloc.planner.certificate import BadPlan, bound, check, faults
from coalloc.planner.network import Demand, File, Host, Isp, Link, LinkKey, Network
from coalloc.planner.results import Limit, PlannedPath
from tests.coalloc.planner.networks import demands, networks

MB = 10**6
XT, YT, XY = LinkKey("x", "t"), LinkKey("y", "t"), LinkKey("x", "y")
HOSTS = (Host("x"), Host("y"), Host("t", (Isp("", down=4 * MB),), io=5 * MB))
NETWORK = Network.of(HOSTS, (Link(XT, 1 * MB), Link(YT, 5 * MB), Link(XY, 2 * MB)))
DEMAND = Demand((File("a", 8 * MB, ("x",), ("t",)), File("b", 4 * MB, ("y",), ("t",))))
PLAN = least_makespan(NETWORK, DEMAND)


def complaint(**changes) -> str:
    return "; ".join(faults(NETWORK, DEMAND, replace(PLAN, **changes)))


def certified(**changes) -> str:
    return complaint(certificate=replace(PLAN.certificate, **changes))


def test_a_sound_plan():
    assert complaint() == ""
    assert PLAN.makespan == 3
    assert PLAN.reason == "3 s at least, because of the downlink of t; without relays it takes 8 s"


def test_plans_that_are_too_fast_or_not_the_fastest_are_refused():
    assert "can carry" in complaint(makespan=Fraction(299, 100))
    assert complaint(makespan=Fraction(4)) == "only 3.0 s are proved to be needed, not 4.0 s"
    assert "without relays it takes 2.0 s, less than 3.0 s" in complaint(direct=Fraction(2))


def test_flows_that_do_not_add_up():
    assert "bytes more come to" in complaint(flows={**PLAN.flows, XY: PLAN.flows[XY] + Fraction(1, 10**9)})
    assert "which are not there" in complaint(flows={**PLAN.flows, LinkKey("t", "x"): Fraction(1)})
    assert "the flow is" in complaint(flows={**PLAN.flows, YT: Fraction(0)})
    assert "a flow of -1" in complaint(flows={**PLAN.flows, YT: Fraction(-1)})


def test_paths_that_lead_nowhere():
    whole = PlannedPath("b", ("y", "t"), 4 * MB)
    rest = tuple(path for path in PLAN.paths if path.file != "b")
    assert "of the 4000000 bytes of b get to t" in complaint(paths=(*rest, whole._replace(bytes=4 * MB - 1)))
    assert "0 of the 4000000 bytes" in complaint(paths=rest)
    assert "does not lead from a holder" in complaint(paths=(*rest, whole._replace(hosts=("x", "t"))))
    assert "goes in circles" in complaint(paths=(*rest, whole._replace(hosts=("y", "x", "y", "t"))))
    assert "has no links" in complaint(paths=(*rest, whole._replace(hosts=("y", "x", "t"))))
    assert "leads nowhere" in complaint(paths=(*PLAN.paths, whole._replace(hosts=())))
    assert "has no links" in complaint(paths=(*rest, whole._replace(hosts=("y", "w", "t"))))
    assert "is of no file" in complaint(paths=(*PLAN.paths, whole._replace(file="c")))


def test_hosts_that_do_not_relay():
    lazy = replace(NETWORK, hosts={**NETWORK.hosts, "y": Host("y", relays=False)})
    assert any("which do not relay" in fault for fault in faults(lazy, DEMAND, PLAN))


def test_certificates_that_prove_too_little_are_refused():
    assert (
        complaint(certificate=replace(PLAN.certificate, prices={})) == "only 0.0 s are proved to be needed, not 3.0 s"
    )
    assert "only 2.4 s are proved" in certified(prices={Limit("io", "t"): Fraction(1)})
    assert "of a, 0.0 bytes are sent" in certified(origins={})
    assert "t cannot send" in certified(origins={**PLAN.certificate.origins, ("a", "t"): Fraction(1)})
    with pytest.raises(BadPlan, match="negative"):
        bound(NETWORK, DEMAND, {Limit("io", "t"): Fraction(-1)})
    with pytest.raises(BadPlan, match="is not a limit"):
        bound(NETWORK, DEMAND, {Limit("io", "x"): Fraction(1)})


@settings(deadline=None)
@given(st.data())
def test_no_plan_can_be_made_better_by_lying(data):
    network = data.draw(networks())
    demand = data.draw(demands(network))
    plan = least_makespan(network, demand)
    assume(plan.flows)
    faster = replace(plan, makespan=plan.makespan * Fraction(999, 1000))
    with pytest.raises(BadPlan, match="can carry"):
        check(network, demand, faster)
    key = data.draw(st.sampled_from(sorted(plan.flows)))
    with pytest.raises(BadPlan):
        check(network, demand, replace(plan, flows={**plan.flows, key: plan.flows[key] + 1}))
    first, *others = plan.paths
    with pytest.raises(BadPlan):
        check(network, demand, replace(plan, paths=(first._replace(bytes=first.bytes + 1), *others)))
