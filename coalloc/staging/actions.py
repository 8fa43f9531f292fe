"""What a method wants done. The runner does it and reports back with events."""

from typing import NamedTuple

__all__ = ["Action", "Cancel", "Done", "Drop", "GiveUp", "Piece", "Send", "Wake"]


class Piece(NamedTuple):
    """Bytes [start, end) of a file."""

    file: str
    start: int
    end: int

    @property
    def size(self) -> int:
        """Bytes of it."""
        return self.end - self.start


class Send(NamedTuple):
    """Begin hop `hop`: copy a piece that `source` holds, as an origin or staged there, to `sink`.

    Hops of one pair of hosts share its connection and go one after the other, in the order of their Sends, without a
    pause between them; those of different pairs go side by side.
    """

    hop: int
    source: str
    sink: str
    piece: Piece


class Cancel(NamedTuple):
    """Stop a hop at once, or take it out of the queue. No event of it is expected; what arrived of it is dropped."""

    hop: int


class Drop(NamedTuple):
    """Delete a piece that is staged at an intermediate host: what is acknowledged elsewhere need not stay."""

    host: str
    piece: Piece


class Wake(NamedTuple):
    """Send a `Tick` at time `at`, unless a later `Wake` named another time."""

    at: float


class Done(NamedTuple):
    """Every piece is where it is wanted."""


class GiveUp(NamedTuple):
    """Pieces are missing that nobody holds any more, or that nobody can send."""

    reason: str


Action = Send | Cancel | Drop | Wake | Done | GiveUp
