"""Files so small that HiGHS loses their flow: their bytes take paths with free capacity, within the budget."""

from fractions import Fraction

import pytest

from coalloc.errors import UsageError
from coalloc.planner import plan
from coalloc.planner.certificate import check
from coalloc.planner.limits import BUDGET, PlanLimits
from coalloc.planner.network import Demand, File, Host, Link, LinkKey, Network, Shared
from coalloc.planner.results import TransferPlan

HUGE = 10**13


def network(rates: dict[str, int], *shared: Shared, io: dict[str, int] | None = None, price: str = "") -> Network:
    """Return a network of links, named by their two ends; the link `price` costs 1 for a byte."""
    hosts = tuple(Host(name, io=(io or {}).get(name)) for name in sorted({*"".join(rates)}))
    links = tuple(Link(LinkKey(*ends), rate, price=float(ends == price)) for ends, rate in rates.items())
    return Network.of(hosts, links, shared)


def demand(budget: float | None = None, big: str = "t", /, **sizes: int) -> Demand:
    """Return files at the hosts of their names for t, and a huge file at x, which takes a second."""
    files = [File(name, size, (name,), ("t",)) for name, size in sizes.items()]
    return Demand((*files, File("huge", HUGE, ("x",), tuple(big))), budget)


def proved(network: Network, demand: Demand) -> TransferPlan:
    found = plan(network, demand)
    check(network, demand, found)
    assert float(found.makespan) == pytest.approx(1, rel=1e-5)
    return found


@pytest.mark.parametrize("budget", [0.0, 5.0])
def test_a_tiny_file_does_not_exceed_the_budget(budget):
    net = network({"at": 10**9, "ab": 10**6, "bt": 10**6, "xt": HUGE}, price="at")
    question = demand(budget, a=10)
    found = proved(net, question)
    assert PlanLimits(net, budget).loads(found.flows)[BUDGET] <= Fraction(budget)


@pytest.mark.parametrize("budget", [0.0, 5.0])
def test_a_plan_beyond_the_budget_is_refused(budget):
    with pytest.raises(UsageError, match="not everything can reach its destination"):
        plan(network({"at": 10**9, "xt": HUGE}, price="at"), demand(budget, a=10))


def test_a_tiny_file_may_use_up_the_budget():
    net = network({"at": 10**9, "ab": 1, "bt": 1, "xt": HUGE}, price="at")
    found = proved(net, demand(10.0, a=10))
    assert found.flows[LinkKey("a", "t")] >= 9


def test_a_shared_set_is_narrower_than_its_links():
    net = network(
        {"at": 10**9, "ab": 10**6, "bt": 10**6, "xt": HUGE}, Shared("narrow", 10**6, {LinkKey("a", "t"): 10.0**6})
    )
    assert ("a", "b", "t") in {path.hosts for path in proved(net, demand(a=10)).paths}


def test_the_disks_of_a_relay_with_a_file_of_its_own_are_narrow():
    rates = {"ab": 10**9, "bt": 10**9, "ac": 10**4, "ct": 10**4, "at": 1, "xt": HUGE, "xu": HUGE}
    net = network(rates, io={"b": 2})
    assert ("a", "c", "t") in {path.hosts for path in proved(net, demand(None, "tu", b=1, a=100)).paths}


def test_tiny_files_do_not_all_take_the_widest_path():
    rates = {"at": 1, "bt": 1, "ad": 900, "dt": 900, "be": 900, "et": 900, "ac": 10**4, "bc": 10**4, "ct": 1000}
    proved(network({**rates, "xt": HUGE, "xu": HUGE}), demand(None, "tu", a=900, b=900))


def test_a_tiny_file_takes_several_paths():
    rates = {"at": 1, "ad": 500, "dt": 500, "ae": 500, "et": 500}
    found = proved(network({**rates, "xt": HUGE, "xu": HUGE}), demand(None, "tu", a=1000))
    assert len([path for path in found.paths if path.file == "a"]) > 1


def test_a_large_file_leaves_a_narrow_link_to_a_tiny_one():
    rates = {"ab": 10**9, "ad": 10**9, "at": 10**9, "ba": 10**9, "dt": 100, "tb": 100, "td": 10**9}
    net = network(rates, Shared("open", 10**12, {LinkKey("a", "b"): 1.0}))
    files = (("a", 10**8), ("b", 10**9), ("d", 1))
    question = Demand(tuple(File(name, size, (name,), ("t",)) for name, size in files))
    check(net, question, plan(net, question))
