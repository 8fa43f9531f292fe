"""Guaranteed rates of classes of files, in virtual time: kept beside others, refused if they cannot be had."""

from math import inf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coalloc.collect.methods.actions import CollectDone, CollectGiveUp, CollectRefuse
from coalloc.collect.methods.guaranteed import Guaranteed
from coalloc.collect.simulation import Capacity, Kill, SimulationRecord, Underlay, simulate
from coalloc.collect.values import GuaranteedClass
from coalloc.planner import Demand, File, Host, Isp, Link, LinkKey, Network
from tests.coalloc.collect.methods.random_simulation import RandomSimulation
from tests.coalloc.planner.networks import collections
from tests.support.effort import effort

MB = 10**6


def network(down: int | None = None, **rates: int) -> Network:
    """Return servers with these rates to the sink `t`, whose own link carries `down`."""
    hosts = (Host("t", (Isp(down=down),) if down else ()), *map(Host, rates))
    return Network.of(hosts, tuple(Link(LinkKey(name, "t"), rate) for name, rate in rates.items()))


def file(name: str, megabytes: int, *holders: str) -> File:
    return File(name, megabytes * MB, holders or ("a",), ("t",))


def run(
    made: Network, files: list[File], *classes: GuaranteedClass, happenings=()
) -> tuple[Guaranteed, SimulationRecord]:
    method = Guaranteed(made, Demand(tuple(files)), classes, clock=1000.0)
    return method, simulate(method, Underlay.of(made), happenings, report_every=0.2, limit=3600)


def missed(method: Guaranteed, pattern: str) -> int:
    found = method.guarantees()[pattern]
    assert found.seconds > 10, "it was promised for some time"
    return found.missed


def arrival(record: SimulationRecord, name: str) -> float:
    return max(hop.ended for hop in record.hops if hop.send.piece.file == name)


def test_a_class_gets_its_rate_beside_others_at_its_server():
    files = [file("bulk", 300), file("x.h5", 100)]
    method, record = run(network(a=10 * MB), files, GuaranteedClass("*.h5", 4 * MB))
    assert record.outcome == "done"
    assert missed(method, "*.h5") == 0
    assert method.guarantees()["*.h5"].kept
    assert method.guarantees()["*.h5"].first.chance > 0.9
    assert record.seconds == pytest.approx(40, abs=1)  # nothing is wasted
    assert 20 < arrival(record, "x.h5") < 30  # no faster than it must be


def test_a_class_gets_its_rate_beside_others_at_the_same_sink():
    """Each server shares the sink's link fairly: without a guarantee, the class gets half of it."""
    made = network(down=10 * MB, a=10 * MB, b=10 * MB, c=10 * MB)
    files = [file("x.h5", 200), file("bulk1", 200, "b"), file("bulk2", 200, "c")]
    method, record = run(made, files, GuaranteedClass("*.h5", 5 * MB))
    assert record.outcome == "done"
    assert missed(method, "*.h5") == 0
    assert record.seconds == pytest.approx(60, abs=3)


def test_others_do_not_wait_in_vain_for_a_class_that_its_server_slows_down():
    made = network(a=10 * MB, b=10 * MB)
    files = [file("x.h5", 400), file("bulk", 1000, "b")]
    slow = [Capacity(10.0, "a -> t", MB)]
    method, record = run(made, files, GuaranteedClass("*.h5", 5 * MB), happenings=slow)
    assert missed(method, "*.h5") > 10
    assert not method.guarantees()["*.h5"].kept
    assert arrival(record, "bulk") < 150  # 100 s at full rate


@pytest.mark.parametrize("rate", [9 * MB, 5e12])
def test_a_rate_that_cannot_be_had_is_refused(rate):
    method, record = run(network(a=10 * MB), [file("x.h5", 900), file("y", 9)], GuaranteedClass("*.h5", rate))
    assert record.outcome == "refused"
    assert record.seconds < 15
    assert method.guarantees()["*.h5"].first.chance < 0.9


def test_what_was_offered_is_admitted():
    made, files = network(a=10 * MB), [file("x.h5", 900)]
    refusals: list[CollectRefuse] = []

    class Noted(Guaranteed):
        def handle(self, event):
            actions = super().handle(event)
            refusals.extend(each for each in actions if isinstance(each, CollectRefuse))
            return actions

    demand = Demand(tuple(files))
    simulate(Noted(made, demand, [GuaranteedClass("*", 9.0 * MB)], 0.0), Underlay.of(made), report_every=0.2)
    offered = 0.9 * (refusals[0].view.possible or 0.0)  # its contract is somewhat longer
    assert offered > MB
    method, record = run(made, files, GuaranteedClass("*", offered))
    assert record.outcome == "done"
    assert method.guarantees()["*"].kept


def test_the_first_fitting_class_counts_and_the_higher_share_has_precedence():
    files = [file("a.h5", 1000), file("b.h5", 1000)]
    seldom, often = GuaranteedClass("b.*", 2 * MB, 0.9), GuaranteedClass("a.*", 2 * MB, 0.99)
    method, record = run(network(a=10 * MB), files, seldom, often, GuaranteedClass("*", 1e9))
    assert record.outcome == "done"
    assert {pattern for pattern, each in method.guarantees().items() if each.kept} == {"b.*", "a.*", "*"}
    assert method.guarantees()["*"].seconds == 0  # no file was left for it
    both = [seldom._replace(rate=4.0 * MB), often._replace(rate=4.0 * MB)]
    method, record = run(network(a=10 * MB), files, *both)
    assert record.outcome == "refused"
    assert method.guarantees()["a.*"].first.chance > 0.9 > method.guarantees()["b.*"].first.chance


def test_a_source_that_dies_after_the_promise_is_replaced_by_a_replica():
    made = network(a=10 * MB, b=10 * MB)
    files = [file("x.h5", 400, "a", "b"), file("bulk", 50, "b")]
    method, record = run(made, files, GuaranteedClass("*.h5", 4 * MB), happenings=[Kill(12.0, "a")])
    assert record.outcome == "done"
    assert missed(method, "*.h5") == 0


def test_a_source_that_dies_after_the_promise_without_a_replica_breaks_it():
    made = network(a=10 * MB, b=10 * MB)
    files = [file("x.h5", 200), file("bulk", 1000, "b")]
    method, record = run(made, files, GuaranteedClass("*.h5", 4 * MB), happenings=[Kill(12.0, "a")])
    assert "x.h5 cannot reach t" in record.outcome
    assert not method.guarantees()["*.h5"].kept
    assert arrival(record, "bulk") < 150


@settings(max_examples=effort(15, 60))
@given(collections(), st.integers(0, 10**6), st.integers(0, 3), st.sampled_from(["*", "f0", "nothing"]))
def test_every_byte_arrives(both: tuple[Network, Demand], seed: int, failures: int, pattern: str):
    made, demand = both
    method = Guaranteed(made, demand, [GuaranteedClass(pattern, 1.0)], 0.0, seed)
    method._admit = lambda now: setattr(method, "_promised", True)  # rates of such simulations are never known
    simulation = RandomSimulation(method, demand, seed, failures)
    assert simulation.run() == CollectDone()
    assert simulation.ledger.done
    assert simulation.ledger.duplicate_bytes == 0


def test_a_lost_file_is_reported_after_all_others_have_arrived():
    demand = Demand((file("a", 1, "a"), file("b", 1, "b")))
    method = Guaranteed(network(a=MB, b=MB), demand, [GuaranteedClass("b", 1.0)], 0.0)
    simulation = RandomSimulation(method, demand, 1, deaths={"a": 0.0})
    end = simulation.run()
    assert isinstance(end, CollectGiveUp)
    assert "a cannot reach t" in end.reason
    assert simulation.ledger.missing("b", "t") == []


def test_a_small_class_is_complete_before_it_is_promised():
    method, record = run(network(a=10 * MB), [file("x", 1), file("y", 100)], GuaranteedClass("x", 5 * MB))
    assert record.outcome == "done"
    assert method.guarantees()["x"].kept
    assert record.seconds < inf
