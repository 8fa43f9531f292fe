"""The events of a collect job that a method receives. Times are seconds on any steady clock."""

from enum import Enum, auto
from typing import NamedTuple

__all__ = [
    "Arrived",
    "CollectStarted",
    "CollectTick",
    "Event",
    "Gone",
    "HopFailed",
    "HopFault",
    "HopMoved",
    "LinkHeld",
    "Refused",
]


class HopFault(Enum):
    """The cause of a hop's failure."""

    LINK = auto()
    """The link, or one of its hosts, for now."""
    NO_LINK = auto()
    """The link, for good: the two hosts cannot send to each other."""
    SINK = auto()
    """The sink, which takes no more pieces: it is full, or refuses to store them."""
    FILE = auto()
    """The source, which refuses to send any of the file, for good; if it is a relay, the piece."""


class CollectStarted(NamedTuple):
    """The beginning of the collect job; all hosts are reachable, as far as is known."""

    at: float


class HopMoved(NamedTuple):
    """The progress of hop `hop`: this many bytes have arrived so far."""

    at: float
    hop: int
    bytes: int


class LinkHeld(NamedTuple):
    """The beginning of a wait of a link, or its end if `over`: silence in it is not a failure of the hosts.

    This machine holds it up: it has all permitted connections to the source, or limits the rate.
    """

    at: float
    source: str
    sink: str
    over: bool = False


class Arrived(NamedTuple):
    """The success of hop `hop`: all of its piece is at its sink, and acknowledged."""

    at: float
    hop: int


class HopFailed(NamedTuple):
    """The failure of hop `hop`: its partial data are deleted. The hops behind it in the queue of its pair continue."""

    at: float
    hop: int
    reason: str
    fault: HopFault = HopFault.LINK


class Gone(NamedTuple):
    """The loss of a host: it cannot be used any more, its staged pieces are lost, and all of its hops have failed."""

    at: float
    host: str
    reason: str


class Refused(NamedTuple):
    """The final refusal of a file by all its holders, or by the destination: its hops fail on their own."""

    at: float
    file: str


class CollectTick(NamedTuple):
    """The alarm set by the last `CollectWake`."""

    at: float


Event = CollectStarted | HopMoved | Arrived | HopFailed | Gone | Refused | LinkHeld | CollectTick
