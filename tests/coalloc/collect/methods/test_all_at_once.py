"""All files at once, directly to the sink."""

from coalloc.collect.methods import AllAtOnce
from coalloc.collect.methods.actions import CollectDone, Piece, Send
from coalloc.collect.methods.events import Arrived, CollectStarted
from coalloc.planner import Demand, File, Host, Link, LinkKey, Network

NETWORK = Network.of(
    (Host("x"), Host("y"), Host("t")), (Link(LinkKey("x", "t"), 1_000_000), Link(LinkKey("y", "t"), 5_000_000))
)
DEMAND = Demand((File("a", 1000, ("x",), ("t",)), File("b", 0, ("y",), ("t",))))


def test_every_file_goes_straight_to_the_sink():
    method = AllAtOnce(NETWORK, DEMAND)
    first, second = method.handle(CollectStarted(0.0))
    assert first == Send(1, "x", "t", Piece("a", 0, 1000))
    assert second == Send(2, "y", "t", Piece("b", 0, 0))
    assert method.handle(Arrived(1.0, 1)) == []
    assert method.handle(Arrived(2.0, 2)) == [CollectDone()]
