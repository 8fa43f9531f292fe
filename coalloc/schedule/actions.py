"""Actions that the scheduler requests. The runner carries them out and reports back with events."""

from typing import NamedTuple

__all__ = ["Abandon", "Action", "Close", "Connect", "Done", "Fetch", "GiveUp", "Shorten", "Wake", "Widen"]


class Fetch(NamedTuple):
    """Begin partial copy `copy`: bytes [start, end) from `source`, except the ranges `skip`, which are present."""

    copy: int
    source: int
    start: int
    end: int
    skip: tuple[tuple[int, int], ...] = ()


class Shorten(NamedTuple):
    """Lower the end of a running partial copy, which then finishes at this offset."""

    copy: int
    end: int


class Abandon(NamedTuple):
    """Stop a partial copy at once; its remaining bytes are not needed, and it sends no more events."""

    copy: int


class Widen(NamedTuple):
    """Use `streams` parallel streams for `source` from now on."""

    source: int
    streams: int


class Connect(NamedTuple):
    """Connect to `source`, for the first time or again after a pause."""

    source: int


class Close(NamedTuple):
    """Close the connections of `source`, including one that is being made; it then sends no more events.

    The source has no partial copy. If `temporary`, it may be connected again later: pending checksum queries continue,
    and its replica is checked for changes before the source is used again.
    """

    source: int
    temporary: bool = False


class Wake(NamedTuple):
    """Send a `Tick` at time `at`, unless a later `Wake` replaces this one."""

    at: float


class Done(NamedTuple):
    """End the transfer: every byte was delivered."""


class GiveUp(NamedTuple):
    """End the transfer: bytes are missing and no source is left."""

    reason: str


Action = Fetch | Shorten | Abandon | Connect | Close | Widen | Wake | Done | GiveUp
