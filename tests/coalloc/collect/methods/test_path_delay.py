"""PathDelay: a timetable for sources, without waiting at relays."""

from coalloc.collect.methods import PathDelay
from coalloc.collect.methods.actions import CollectWake, Send
from coalloc.collect.methods.events import Arrived, CollectStarted, CollectTick
from coalloc.planner.network import Demand, File
from tests.coalloc.planner.collections import line


def test_each_piece_sets_out_at_its_time_whatever_the_others_do():
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


def test_on_the_way_nothing_waits():
    demand = Demand((File("a", 8, ("A",), ("D",)),))
    method = PathDelay(line(A_R=4, R_D=4), demand, step=1.0, unit=1)
    first = method.handle(CollectStarted(0.0))[0]
    assert isinstance(first, Send)
    onward = method.handle(Arrived(0.1, first.hop))[0]
    assert isinstance(onward, Send)
    assert (onward.source, onward.sink, onward.piece) == ("R", "D", first.piece)
