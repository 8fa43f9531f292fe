"""The least makespan, by every library, and its proof."""

import subprocess
import sys
from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coalloc.errors import UsageError
from coalloc.planner import least_makespan
from coalloc.planner.certificate import check
from coalloc.planner.network import Demand, File, Host, Isp, Link, LinkKey, Network
from coalloc.planner.results import PlannedPath
from coalloc.planner.solvers.maxflow import BACKENDS
from coalloc.planner.static.makespan import solve
from tests.coalloc.planner.networks import demands, networks

MB = 10**6


def triangle(hosts: str = "xyt") -> Network:
    """The network of Confluence, figure 1."""
    links = (("x", "t", 1), ("y", "t", 5), ("x", "y", 2), ("y", "x", 2))
    return Network.of(tuple(map(Host, hosts)), tuple(Link(LinkKey(a, b), c * MB) for a, b, c in links))


TWO = Demand((File("a", 1000 * MB, ("x",), ("t",)), File("b", 1000 * MB, ("y",), ("t",))))


def test_the_motivating_example_of_the_paper():
    plan = least_makespan(triangle(), TWO)
    check(triangle(), TWO, plan)
    assert (plan.makespan, plan.direct) == (Fraction(1000, 3), 1000)
    assert plan.flows[LinkKey("x", "t")] == Fraction(1000 * MB, 3)
    assert set(plan.paths) == {
        PlannedPath("a", ("x", "t"), 333_333_334),
        PlannedPath("a", ("x", "y", "t"), 666_666_666),
        PlannedPath("b", ("y", "t"), 1000 * MB),
    }
    assert plan.reason == "333.3 s at least, because of all links into t; without relays it takes 1000 s"


@settings(deadline=None)
@given(st.data())
def test_every_library_finds_the_same_and_proves_it(data):
    network = data.draw(networks())
    demand = data.draw(demands(network))
    plans = [solve(network, demand, backend) for backend in BACKENDS]
    for plan in plans:
        check(network, demand, plan)
    assert len({(plan.makespan, plan.direct) for plan in plans}) == 1


def test_the_least_time_is_rational():
    network = Network.of((Host("x"), Host("t")), (Link(LinkKey("x", "t"), 7),))
    demand = Demand((File("a", 10, ("x",), ("t",)),))
    plan = least_makespan(network, demand)
    assert (plan.method, plan.makespan, plan.rates) == ("direct", Fraction(10, 7), {LinkKey("x", "t"): 7})
    assert plan.reason == "1.429 s at least, because of all links into t; relays are not faster"


def test_all_isps_of_a_host_are_used():
    hosts = (Host("x", (Isp("one", up=3 * MB), Isp("two", up=2 * MB))), Host("t"))
    network = Network.of(hosts, tuple(Link(LinkKey("x", "t", isp), 4 * MB) for isp in ("one", "two")))
    demand = Demand((File("a", 10 * MB, ("x",), ("t",)),))
    plan = least_makespan(network, demand)
    check(network, demand, plan)
    assert plan.makespan == 2
    assert plan.paths == (PlannedPath("a", ("x", "t"), 10 * MB),)
    assert "the uplink of x to one and the uplink of x to two" in plan.reason


def test_replicas_are_co_allocation():
    network = Network.of(
        tuple(map(Host, "xyzt")), tuple(Link(LinkKey(a, "t"), c) for a, c in (("x", 1), ("y", 2), ("z", 3)))
    )
    demand = Demand((File("a", 60, ("x", "y", "z"), ("t",)), File("b", 6, ("x", "y"), ("t",))))
    plan = least_makespan(network, demand)
    check(network, demand, plan)
    assert (plan.method, plan.makespan) == ("direct", 11)
    assert {(path.hosts, path.bytes) for path in plan.paths if path.file == "a"} >= {(("z", "t"), 33)}


def test_plan_avoids_hosts_that_do_not_relay():
    network = triangle()
    network = replace(network, hosts={**network.hosts, "y": Host("y", relays=False)})
    plan = least_makespan(network, TWO)
    check(network, TWO, plan)
    assert (plan.method, plan.makespan) == ("direct", 1000)


def test_files_that_take_no_time_have_a_path():
    files = (
        File("empty", 0, ("x",), ("t",)),
        File("there", 5, ("t", "x"), ("t",)),
        File("nothing", 0, ("t",), ("t",)),
    )
    plan = least_makespan(triangle(), Demand(files))
    check(triangle(), Demand(files), plan)
    assert (plan.makespan, plan.reason) == (0, "nothing has to be sent")
    assert plan.paths == (
        PlannedPath("empty", ("x", "t"), 0),
        PlannedPath("there", ("t",), 5),
        PlannedPath("nothing", ("t",), 0),
    )


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ((File("a", 5, ("z",), ("t",)),), "there is no path from z to t"),
        ((File("a", 0, ("z",), ("t",)),), "there is no path from z to t"),
        ((File("a", 5, ("w",), ("t",)),), "names the unknown host 'w'"),
        ((File("a", 5, (), ("t",)),), "no holder"),
        ((File("a", 5, ("x",), ("t",), available=3.0),), "becomes available later"),
        ((File("a", 5, ("x",), ("t", "y")),), "several destinations"),
        ((File("a", 2**60, ("x",), ("t",)),), "too large"),
    ],
)
def test_unplannable_files_are_refused_with_the_reason(files: tuple[File, ...], message: str):
    network = triangle()
    with pytest.raises(UsageError, match=message):
        least_makespan(replace(network, hosts={**network.hosts, "z": Host("z")}), Demand(files))


def test_a_capacity_that_is_too_large():
    network = Network.of((Host("x"), Host("t")), (Link(LinkKey("x", "t"), 2**60),))
    with pytest.raises(UsageError, match="too large"):
        least_makespan(network, Demand((File("a", 5, ("x",), ("t",)),)))


@pytest.mark.parametrize("ask", [".least_makespan", ".plan", ".static.deadline.refusal"])
def test_missing_libraries_are_named_in_the_error(ask: str):
    module, name = ask.rsplit(".", 1)
    code = f"""
import sys
sys.modules["numpy"] = None
from coalloc.errors import UsageError
from coalloc.planner{module} import {name}
try:
    {name}(None, None, *{[1] * (name == "refusal")})
except UsageError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout == "plans need NumPy and SciPy\n"


def test_plan_by_max_flow_does_not_load_the_linear_solver():
    """Loading the library takes longer than such a plan, during which nothing is sent."""
    code = """
import sys
from coalloc.planner import plan
from coalloc.planner.network import Demand, File, Host, Link, LinkKey, Network
network = Network.of((Host("x"), Host("t")), (Link(LinkKey("x", "t"), 5),))
print(plan(network, Demand((File("a", 10, ("x",), ("t",)),))).makespan, "scipy.optimize" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout == "2 False\n"
