"""The least time, by every library, and the proof of it."""

from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from coalloc.planner.certificate import check
from coalloc.planner.least import least_makespan
from coalloc.planner.maxflow import BACKENDS
from coalloc.planner.network import Demand, File, Host, Link, LinkKey, Network
from coalloc.planner.plan import Path
from coalloc.planner.static import solve
from tests.coalloc.planner.networks import demands, networks

MB = 10**6


def triangle(hosts: str = "xyt") -> Network:
    """Confluence, figure 1."""
    links = (("x", "t", 1), ("y", "t", 5), ("x", "y", 2), ("y", "x", 2))
    return Network.of(tuple(map(Host, hosts)), tuple(Link(LinkKey(a, b), c * MB) for a, b, c in links))


TWO = Demand((File("a", 1000 * MB, ("x",), ("t",)), File("b", 1000 * MB, ("y",), ("t",))))


def test_the_motivating_example_of_the_paper():
    plan = least_makespan(triangle(), TWO)
    check(triangle(), TWO, plan)
    assert (plan.makespan, plan.direct) == (Fraction(1000, 3), 1000)
    assert plan.flows[LinkKey("x", "t")] == Fraction(1000 * MB, 3)
    assert set(plan.paths) == {
        Path("a", ("x", "t"), 333_333_334),
        Path("a", ("x", "y", "t"), 666_666_666),
        Path("b", ("y", "t"), 1000 * MB),
    }
    assert plan.reason == "all links into t can do it in 333.3 s at best; without relays it takes 1000 s"


@given(st.data())
def test_every_library_finds_the_same_and_proves_it(data):
    network = data.draw(networks())
    demand = data.draw(demands(network))
    plans = [solve(network, demand, backend) for backend in BACKENDS]
    for plan in plans:
        check(network, demand, plan)
    assert len({(plan.makespan, plan.direct) for plan in plans}) == 1
