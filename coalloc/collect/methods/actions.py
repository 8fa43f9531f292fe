"""The actions that a method may request. The runner executes them and reports back with events."""

from typing import NamedTuple

from coalloc.model.promises import RateView

__all__ = [
    "Action",
    "Cancel",
    "CollectDone",
    "CollectGiveUp",
    "CollectRefuse",
    "CollectWake",
    "Drop",
    "Piece",
    "Send",
]


class Piece(NamedTuple):
    """Bytes [start, end) of a file."""

    file: str
    start: int
    end: int

    @property
    def size(self) -> int:
        """Bytes of the piece."""
        return self.end - self.start


class Send(NamedTuple):
    """The beginning of hop `hop`: it copies a piece from `source`, an origin or a host that staged it, to `sink`.

    Hops of one pair of hosts share its connection and run one after the other, in the order of their Sends, without
    pauses; hops of different pairs run at the same time.
    """

    hop: int
    source: str
    sink: str
    piece: Piece


class Cancel(NamedTuple):
    """The end of a hop, under way or in the queue. No further events follow; its partial data are deleted."""

    hop: int


class Drop(NamedTuple):
    """The deletion of a piece staged at a relay, for example after its next host has acknowledged it."""

    host: str
    piece: Piece


class CollectWake(NamedTuple):
    """A request for a `CollectTick` at time `at`, unless a later `CollectWake` sets another time."""

    at: float


class CollectDone(NamedTuple):
    """The success of the collect job: every piece is at its destination."""


class CollectGiveUp(NamedTuple):
    """The failure of the collect job: no host holds some missing pieces any more, or none can send them."""

    reason: str


class CollectRefuse(NamedTuple):
    """The end of the collect job because a class of files cannot be promised its rate."""

    pattern: str
    view: RateView


Action = Send | Cancel | Drop | CollectWake | CollectDone | CollectGiveUp | CollectRefuse
