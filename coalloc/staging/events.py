"""What happens to a collection, as a method is told it. Times are seconds on any steady clock."""

from typing import NamedTuple

__all__ = ["Arrived", "Event", "Failed", "Gone", "Moved", "Started", "Tick"]


class Started(NamedTuple):
    """The collection begins; all hosts are reachable, as far as is known."""

    at: float


class Moved(NamedTuple):
    """Of hop `hop`, so many bytes have arrived by now."""

    at: float
    hop: int
    bytes: int


class Arrived(NamedTuple):
    """Hop `hop` is over: all of its piece is at its sink, and acknowledged."""

    at: float
    hop: int


class Failed(NamedTuple):
    """Hop `hop` failed, and what arrived of it is gone. What waits behind it in the queue of its pair goes on.

    `full` says that the sink had no space.
    """

    at: float
    hop: int
    reason: str
    full: bool = False


class Gone(NamedTuple):
    """A host cannot be used any more, and what is staged there is lost; all of its hops have failed."""

    at: float
    host: str
    reason: str


class Tick(NamedTuple):
    """The time of the last `Wake` has come."""

    at: float


Event = Started | Moved | Arrived | Failed | Gone | Tick
