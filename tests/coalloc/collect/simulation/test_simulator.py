"""Whole collections in virtual time: times computed by hand, and invariants."""

from collections.abc import Callable
from math import inf

import pytest

from coalloc.collect.methods import AllAtOnce
from coalloc.collect.methods.actions import Cancel, CollectGiveUp, CollectWake, Drop, Piece, Send
from coalloc.collect.methods.base import Method
from coalloc.collect.methods.events import Arrived, CollectStarted, CollectTick, Gone, HopFailed, HopFault, HopMoved
from coalloc.collect.methods.ledger import IllegalActionError
from coalloc.collect.simulation import Break, Capacity, FluidStream, Kill, RateShare, Underlay, simulate
from coalloc.planner import Demand, File, Host, Isp, Link, LinkKey, Network, Shared

X = Piece("x", 0, 600)
DEMAND = Demand((File("x", 600, ("a",), ("t",)), File("y", 1500, ("b",), ("t",))))


def network(*links: tuple[str, str, int], hosts: tuple[Host, ...] = ()) -> Network:
    names = {name for link in links for name in link[:2]} - {host.name for host in hosts}
    made = tuple(Link(LinkKey(source, sink), capacity) for source, sink, capacity in links)
    return Network.of((*hosts, *map(Host, sorted(names))), made)


PLAIN = network(("a", "t", 100), ("b", "t", 300), ("a", "b", 200))


class Scripted(Method):
    """A method with scripted answers: `answers` gets each event."""

    name = "scripted"

    def __init__(self, demand: Demand, answers: Callable) -> None:
        super().__init__(PLAIN, demand)
        self._answers = answers
        self.events = []

    def _decide(self, event, ended):
        self.events.append(event)
        yield from self._answers(event) or ()


def test_all_at_once_takes_as_long_as_its_slowest_file():
    record = simulate(AllAtOnce(PLAIN, DEMAND), Underlay.of(PLAIN))
    assert (record.outcome, record.seconds) == ("done", 6)
    assert [(hop.send.source, hop.began, hop.ended, hop.outcome) for hop in record.hops] == [
        ("b", 0, 5, "arrived"),
        ("a", 0, 6, "arrived"),
    ]
    assert record.staged == {}


def test_freed_capacity_goes_to_the_other_transfer():
    """Both share the sink's downlink until the small file has arrived."""
    narrow = network(("a", "t", 1000), ("b", "t", 1000), hosts=(Host("t", (Isp(down=200),)),))
    record = simulate(AllAtOnce(narrow, DEMAND), Underlay.of(narrow))
    assert [hop.ended for hop in record.hops] == [6, 10.5]


def test_disks_and_shared_bottlenecks_limit():
    slow = network(("a", "t", 1000), ("b", "t", 1000), hosts=(Host("b", io=150),))
    assert simulate(AllAtOnce(slow, DEMAND), Underlay.of(slow)).seconds == 10
    keys = {key: 2.0 if key.source == "b" else 1.0 for key in slow.links}
    behind = Network(slow.hosts, slow.links, (Shared("core", 300, keys),))
    assert [hop.ended for hop in simulate(AllAtOnce(behind, DEMAND), Underlay.of(behind)).hops] == [6, 12]


def test_networks_change_to_the_second():
    changes = [Capacity(3, "a -> t", 0), Capacity(7, "a -> t", 150), RateShare(8, ("b", "t"), 2.0)]
    assert simulate(AllAtOnce(PLAIN, DEMAND), Underlay.of(PLAIN), changes).seconds == 9


def test_other_people_have_less_meanwhile():
    links = {"core": 300.0}
    pairs = {("a", "t"): {"core": 1.0}, ("b", "t"): {"core": 1.0}}
    ground = Underlay(links, pairs, (FluidStream("tcp", {"core": 1.0}),))
    record = simulate(AllAtOnce(PLAIN, DEMAND), ground)
    assert (record.seconds, record.background) == (12, {"tcp": 1500})


def test_a_pair_sends_one_after_the_other_and_a_relay_keeps_what_is_on_its_way():
    halves = [Piece("x", 0, 300), Piece("x", 300, 600)]

    def answers(event):
        match event:
            case CollectStarted():
                yield from (Send(number, "a", "b", half) for number, half in enumerate(halves))
            case Arrived(_, hop) if hop < 2:
                yield Send(hop + 10, "b", "t", halves[hop])

    record = simulate(Scripted(Demand((DEMAND.files[0],)), answers), Underlay.of(PLAIN))
    assert [(hop.send.hop, hop.began, hop.ended) for hop in record.hops] == [
        (0, 0, 1.5),
        (10, 1.5, 2.5),
        (1, 1.5, 3.0),
        (11, 3.0, 4.0),
    ]
    assert record.staged == {"b": [(0.0, 300), (1.5, 600), (2.5, 300), (4.0, 0)]}
    assert (record.peak("b"), record.peak("t")) == (600, 0)


def test_a_method_hears_what_moves_and_when_it_wanted_to_wake():
    def answers(event):
        if isinstance(event, CollectStarted):
            yield Send(1, "a", "t", X)
            yield CollectWake(2.5)
            yield CollectWake(1.25)

    method = Scripted(Demand((DEMAND.files[0],)), answers)
    simulate(method, Underlay.of(PLAIN), report_every=2)
    assert method.events == [
        CollectStarted(0),
        CollectTick(1.25),
        HopMoved(2, 1, 200),
        HopMoved(4, 1, 400),
    ]  # reported at 6: it has arrived


def test_cancelled_hop_gives_no_event_even_at_its_arrival():
    def answers(event):
        match event:
            case CollectStarted():
                yield from (Send(1, "a", "b", X), Send(2, "a", "b", X), Send(3, "a", "t", X), CollectWake(3))
            case Arrived(_, 3):
                raise AssertionError("it was cancelled")
            case CollectTick(3):
                yield from (Cancel(3), Cancel(2), Send(4, "b", "t", X))

    method = Scripted(Demand((DEMAND.files[0],)), answers)
    record = simulate(method, Underlay.of(PLAIN))
    assert [(hop.send.hop, hop.ended, hop.outcome) for hop in record.hops] == [
        (1, 3, "arrived"),
        (3, 3, "cancelled"),
        (2, 3, "cancelled"),
        (4, 5, "arrived"),
    ]


def test_a_connection_that_breaks_fails_one_hop():
    def answers(event):
        match event:
            case CollectStarted():
                yield from (Send(1, "a", "t", X), Send(2, "b", "t", Piece("y", 0, 1500)))
            case HopFailed(_, 1):
                yield Send(3, "a", "t", X)

    method = Scripted(DEMAND, answers)
    assert (
        simulate(method, Underlay.of(PLAIN), [Break(4, "a", "t"), Break(4, "a", "b")], report_every=inf).seconds == 10
    )
    assert HopFailed(4, 1, "the connection broke") in method.events


def test_a_host_that_dies_takes_what_is_staged_there():
    def answers(event):
        match event:
            case CollectStarted():
                yield Send(1, "a", "b", X)
            case Arrived(_, 1):
                yield from (Send(2, "b", "t", X), Send(3, "a", "b", X))
            case Gone():
                yield Send(4, "a", "t", X)

    method = Scripted(Demand((DEMAND.files[0],)), answers)
    record = simulate(method, Underlay.of(PLAIN), [Kill(4, "b")], report_every=inf)
    assert (record.outcome, record.seconds) == ("done", 10)
    assert method.events[2:] == [Gone(4, "b", "it died")]
    assert record.staged["b"][-1] == (4, 0)


def test_a_relay_may_be_full_and_a_pair_may_have_no_way():
    small = network(("a", "t", 100), ("a", "b", 200), hosts=(Host("b", storage=500),))

    def answers(event):
        match event:
            case CollectStarted():
                yield from (Send(1, "a", "b", X), Send(2, "a", "b", Piece("x", 0, 500)), Send(3, "b", "t", X))
            case HopFailed(_, 1, _, HopFault.SINK):
                yield Drop("b", X)

    with pytest.raises(IllegalActionError, match="b does not hold"):
        simulate(Scripted(DEMAND, answers), Underlay.of(small))

    def careful(event):
        match event:
            case CollectStarted():
                yield from (Send(1, "a", "b", X), Send(2, "a", "b", Piece("x", 0, 500)))
            case HopFailed(_, 1, _, HopFault.SINK):
                return
            case Arrived(_, 2):
                yield Send(3, "b", "t", Piece("x", 0, 500))
            case HopFailed(_, 3, reason):
                yield CollectGiveUp(reason)

    record = simulate(Scripted(DEMAND, careful), Underlay.of(small), report_every=inf)
    assert (record.outcome, record.seconds) == ("there is no path from b to t", 2.5)


def test_idle_method_is_an_error_and_a_stalled_run_ends_at_the_limit():
    with pytest.raises(IllegalActionError, match="scripted waits"):
        simulate(Scripted(DEMAND, lambda event: ()), Underlay.of(PLAIN))
    stalled = network(("a", "t", 0), ("b", "t", 300))
    record = simulate(AllAtOnce(PLAIN, DEMAND), Underlay.of(stalled), limit=50, report_every=inf)
    assert (record.outcome, record.seconds) == ("out of time", 50)


@pytest.mark.parametrize("size", [0, 1, 10**15])
def test_sizes_that_are_not_usual(size):
    demand = Demand((File("x", size, ("a",), ("t",)),))
    record = simulate(AllAtOnce(PLAIN, demand), Underlay.of(PLAIN), limit=inf, report_every=inf)
    assert (record.outcome, record.seconds) == ("done", pytest.approx(size / 100))


def test_compiled_is_the_same():
    plain, fast = (simulate(AllAtOnce(PLAIN, DEMAND), Underlay.of(PLAIN), fast=fast) for fast in (False, True))
    assert plain == fast
