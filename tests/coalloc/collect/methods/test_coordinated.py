"""Methods by a timetable.

PathSync waits for X % of a step's transfers, no more and no less. PathDelay has a timetable for sources, and nothing
waits on the way.
"""

from hypothesis import given, settings
from hypothesis import strategies as st

from coalloc.collect.methods import PathDelay, PathSync
from coalloc.collect.methods.actions import CollectDone, CollectWake, Piece, Send
from coalloc.collect.methods.events import Arrived, CollectStarted, CollectTick, HopFailed
from coalloc.errors import UsageError
from coalloc.planner.network import Demand, File, LinkKey, Network
from tests.coalloc.collect.methods.random_simulation import RandomSimulation
from tests.coalloc.planner.networks import collections, line
from tests.support.effort import effort

STRAIGHT = line(A_D=2, B_D=2, C_D=2)
THREE = Demand(tuple(File(name.lower(), 6, (name,), ("D",)) for name in "ABC"))
"""Three steps of three transfers each."""


def sends(actions: list) -> list[Send]:
    return [action for action in actions if isinstance(action, Send)]


def test_by_default_95_percent_are_waited_for():
    method = PathSync(STRAIGHT, THREE, step=1.0, unit=1)
    hops = [send.hop for send in sends(method.handle(CollectStarted(0.0)))]
    assert len(hops) == 3
    assert method.handle(Arrived(1.0, hops[0])) == []
    assert method.handle(Arrived(1.0, hops[1])) == []
    assert len(sends(method.handle(Arrived(9.0, hops[2])))) == 3


def test_two_of_three_transfers_are_66_percent():
    method = PathSync(STRAIGHT, THREE, percent=66, step=1.0, unit=1)
    hops = [send.hop for send in sends(method.handle(CollectStarted(0.0)))]
    assert method.handle(Arrived(1.0, hops[0])) == []
    assert len(sends(method.handle(Arrived(1.0, hops[1])))) == 3


def test_second_hop_starts_after_the_first_has_ended():
    network = line(A_R=4, R_D=4, A_D=1, B_D=1)
    demand = Demand((File("a", 8, ("A",), ("D",)), File("b", 3, ("B",), ("D",))))
    method = PathSync(network, demand, percent=50, step=1.0, unit=1)
    first = sends(method.handle(CollectStarted(0.0)))
    around = next(send for send in first if send.sink == "R")
    straight = [send for send in first if send.sink == "D"]
    second = sends(method.handle(Arrived(1.0, straight[0].hop))) + sends(method.handle(Arrived(1.0, straight[1].hop)))
    assert second
    assert all(send.source != "R" for send in second)
    third = sends(method.handle(Arrived(2.0, around.hop)))
    assert [(send.source, send.sink, send.piece) for send in third] == [("R", "D", around.piece)]


def test_no_barrier_waits_for_what_failed():
    method = PathSync(STRAIGHT, THREE, percent=100, step=1.0, unit=1)
    hops = [send.hop for send in sends(method.handle(CollectStarted(0.0)))]
    method.handle(Arrived(1.0, hops[0]))
    method.handle(Arrived(1.0, hops[1]))
    assert len(sends(method.handle(HopFailed(2.0, hops[2], "reset")))) == 2, "the others go on, this pair rests"
    again = sends(method.handle(CollectTick(3.0)))
    assert {send.source for send in again} == {"C"}
    assert len(again) == 2, "what failed, and what is due"


def test_a_piece_is_the_very_piece_all_along():
    network = line(A_R=4, R_D=4, A_D=1)
    demand = Demand((File("a", 10, ("A",), ("D",)),))
    method = PathSync(network, demand, percent=100, step=1.0, unit=1)
    waiting, way, now = sends(method.handle(CollectStarted(0.0))), {}, 0.0
    while waiting:
        send, now = waiting.pop(0), now + 1
        way.setdefault(send.piece, []).append(LinkKey(send.source, send.sink))
        actions = method.handle(Arrived(now, send.hop))
        waiting += sends(actions)
    assert actions[-1] == CollectDone()
    assert {str(hop) for hops in way.values() for hop in hops} == {"A -> R", "R -> D", "A -> D"}
    assert all(hops[-1].sink == "D" for hops in way.values())
    assert sum(piece.size for piece in way) == 10
    assert Piece("a", 0, 10) not in way


def test_rationale_states_steps_and_relayed_share():
    around = PathSync(line(A_R=4, R_D=4, A_D=1), Demand((File("a", 40, ("A",), ("D",)),)), step=1.0, unit=1)
    assert around.rationale == "9 steps of 1 s, 78% of all bytes over R"
    straight = PathSync(STRAIGHT, THREE, step=1.0, unit=1)
    assert straight.rationale == "3 steps of 1 s, all direct: no path over other hosts is faster"


@settings(max_examples=effort(15, 50))
@given(collections(), st.integers(0, 10**6))
def test_intermediates_keep_at_most_their_storage_with_barriers(both: tuple[Network, Demand], seed: int):
    network, demand = both
    try:
        method = PathSync(network, demand, percent=100, step=1.0, unit=1)
    except UsageError:
        return
    simulation = RandomSimulation(method, demand, seed)
    assert simulation.run() == CollectDone()
    for name, host in network.hosts.items():
        assert host.storage is None or name == "D" or simulation.ledger.peak[name] <= host.storage


def test_each_piece_starts_at_its_scheduled_time():
    demand = Demand((File("a", 6, ("A",), ("D",)),))
    method = PathDelay(line(A_D=2), demand, step=10.0, unit=10)
    assert [type(action) for action in method.handle(CollectStarted(100.0))] == [Send]
    method = PathDelay(line(A_D=2), demand, step=1.0, unit=1)
    assert [type(action) for action in method.handle(CollectStarted(100.0))] == [Send, CollectWake]
    late = method.handle(CollectTick(101.0))
    assert [type(action) for action in late] == [Send, CollectWake]
    assert late[1] == CollectWake(102.0)


def test_x_stretches_the_timetable():
    demand = Demand((File("a", 6, ("A",), ("D",)),))
    method = PathDelay(line(A_D=2), demand, factor=1.5, step=1.0, unit=1)
    assert method.handle(CollectStarted(100.0))[-1] == CollectWake(101.5)


def test_relayed_pieces_are_forwarded_at_once():
    demand = Demand((File("a", 8, ("A",), ("D",)),))
    method = PathDelay(line(A_R=4, R_D=4), demand, step=1.0, unit=1)
    first = method.handle(CollectStarted(0.0))[0]
    assert isinstance(first, Send)
    onward = method.handle(Arrived(0.1, first.hop))[0]
    assert isinstance(onward, Send)
    assert (onward.source, onward.sink, onward.piece) == ("R", "D", first.piece)
