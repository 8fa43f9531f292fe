"""Linear programs: results that max-flow cannot give, and equal results where it can."""

from dataclasses import replace
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from coalloc.errors import TooMuch, UsageError
from coalloc.planner import plan
from coalloc.planner.certificate import check
from coalloc.planner.network import Demand, File, Host, Link, LinkKey, Network, Shared
from coalloc.planner.solvers import linear
from coalloc.planner.static import linear_program, makespan
from tests.coalloc.planner.networks import USUAL, USUAL_SIZES, demands, networks

MB = 10**6


def star(*shared: Shared, io: int | None = None, price: float = 0.0) -> Network:
    """Return a network in which a and b reach t slowly by direct links, and fast over r."""
    links = [("a", "t", 1, 0.0), ("b", "t", 1, 0.0), ("a", "r", 9, 0.0), ("b", "r", 9, 0.0), ("r", "t", 8, price)]
    hosts = (Host("a"), Host("b"), Host("r", io=io), Host("t"))
    return Network.of(hosts, tuple(Link(LinkKey(x, y), c * MB, price=p) for x, y, c, p in links), shared)


TEN = Demand((File("f", 500 * MB, ("a",), ("t",)), File("g", 500 * MB, ("b",), ("t",))))


def near(seconds: float) -> object:
    return pytest.approx(seconds, rel=1e-6)


@settings(deadline=None)
@given(st.data())
def test_the_same_as_max_flow_where_that_can_answer(data):
    network = data.draw(networks(USUAL))
    demand = data.draw(demands(network, USUAL_SIZES))
    exact, found = makespan.solve(network, demand), linear_program.LinearSolver(network, demand).plan()
    check(network, demand, found)
    assert float(found.makespan) == pytest.approx(float(exact.makespan), rel=1e-6)


@settings(deadline=None)
@given(st.data())
def test_shared_sets_disks_budgets_and_several_destinations_are_proved(data):
    network = data.draw(networks(USUAL, sets=True))
    demand = data.draw(demands(network, USUAL_SIZES, disks=True))
    reached = [name for name in network.hosts if all(_reaches(network, file, name) for file in demand.files)]
    also = data.draw(st.lists(st.sampled_from(reached), unique=True))
    files = tuple(replace(file, destinations=tuple(dict.fromkeys(("t", *also)))) for file in demand.files)
    demand = Demand(files, budget=data.draw(st.none() | st.floats(1, 10**4)))
    try:
        found = plan(network, demand)
    except TooMuch:
        raise
    except UsageError:
        assert demand.budget is not None
    else:
        check(network, demand, found)


def _reaches(network: Network, file: File, sink: str) -> bool:
    pairs = {(key.source, key.sink) for key in network.links}
    return any(holder == sink or (holder, sink) in pairs for holder in file.holders)


def test_a_shared_bottleneck():
    both = {LinkKey("r", "t"): 1.0, LinkKey("a", "t"): 1.0}
    network = star(Shared("the fibre", 4 * MB, both))
    found = plan(network, TEN)
    check(network, TEN, found)
    assert float(found.makespan) == near(200)
    assert found.reason.startswith("200 s at least, because of the link b -> t and the shared set the fibre")


def test_a_plan_on_which_the_solver_gives_up_is_too_much(monkeypatch):
    """HiGHS gives up without memory, too."""
    limits = {"maxiter": 0, "presolve": False}
    monkeypatch.setattr(linear, "linprog", partial(linprog, options=limits))
    with pytest.raises(TooMuch, match="HiGHS could not compute the plan"):
        plan(star(price=1e-6), replace(TEN, budget=500.0))


def test_a_budget_is_kept_and_named():
    network = star(price=1e-6)
    rich, poor = replace(TEN, budget=1000.0), replace(TEN, budget=500.0)
    assert plan(network, rich).makespan == near(100)
    found = plan(network, poor)
    check(network, poor, found)
    assert float(found.makespan) == near(250)
    assert "the budget" in found.reason
    assert sum(path.bytes for path in found.paths if "r" in path.hosts) * 1e-6 <= 500.001


def test_a_budget_that_costs_much_time():
    network = star(price=1e-6)
    network = replace(
        network,
        links={
            k: replace(v, capacity=v.capacity // 1000) if k.sink == "t" and not v.price else v
            for k, v in network.links.items()
        },
    )
    poor = replace(TEN, budget=1.0)
    found = plan(network, poor)
    check(network, poor, found)
    assert float(found.makespan) == near(499_500)


def test_disks_write_what_they_relay_and_read_it():
    network = star(io=6 * MB)
    found = plan(network, TEN)
    check(network, TEN, found)
    assert (found.method, found.makespan) == ("least makespan", 200)
    assert "the disks of r" in found.reason


def test_a_relay_with_replicas_has_disks_too():
    network, demand = star(io=6 * MB), Demand((*TEN.files, File("h", 100 * MB, ("a", "r"), ("t",))))
    found = plan(network, demand)
    check(network, demand, found)
    assert found.method == "linear program"
    assert float(found.makespan) == near(210)


def test_two_destinations():
    network = Network.of(
        tuple(map(Host, "abc")), tuple(Link(LinkKey(x, y), c * MB) for x, y, c in (("a", "b", 4), ("b", "c", 4)))
    )
    demand = Demand((File("f", 100 * MB, ("a",), ("b", "c")),))
    found = plan(network, demand)
    check(network, demand, found)
    assert (float(found.makespan), found.direct) == (near(50), None)
    assert found.flows[LinkKey("a", "b")] == 200 * MB


def test_a_budget_that_is_too_small():
    network = star(price=1e-6).without("a")
    network = replace(network, links={key: link for key, link in network.links.items() if key.source != "b"})
    demand = Demand((File("f", 10, ("b",), ("t",)),), budget=1.0)
    with pytest.raises(UsageError, match="not everything can reach"):
        plan(network, demand)


def test_nothing_goes_where_no_capacity_is():
    rates = {
        "ab": 10**9, "ac": 10**9, "ad": 100, "ba": 10, "bc": 10**9, "bd": 10**5, "bt": 10**7,
        "ca": 10, "cb": 10**3, "cd": 10**7, "ct": 0, "da": 0, "db": 0, "dc": 0, "dt": 10**3,
    }  # fmt: skip
    links = [Link(LinkKey(*pair), rate) for pair, rate in rates.items()]
    closed = Shared("closed", 0, {LinkKey("b", "t"): 1.0})
    network = Network.of(tuple(map(Host, "abcdt")), tuple(links), (closed,))
    files = [File(name, size, (name,), ("t",)) for name, size in zip("abcd", (10, 10, 10**12, 10**5), strict=True)]
    demand = Demand(tuple(files))
    found = plan(network, demand)
    check(network, demand, found)
    assert not found.flows.get(LinkKey("b", "t"))
