"""What the scheduler wants done. The runner does it and reports back with events."""

from dataclasses import dataclass

__all__ = ["Abandon", "Action", "Connect", "Done", "Fetch", "GiveUp", "Shorten", "Wake"]


@dataclass(frozen=True, slots=True)
class Fetch:
    """Begin partial copy `copy`: bytes [start, end) from `source`."""

    copy: int
    source: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Shorten:
    """Lower the end of a running partial copy. It will finish there."""

    copy: int
    end: int


@dataclass(frozen=True, slots=True)
class Abandon:
    """Stop a partial copy at once; nothing more of it is wanted and no event of it is expected."""

    copy: int


@dataclass(frozen=True, slots=True)
class Connect:
    """Connect to `source`, for the first time or again after a pause."""

    source: int


@dataclass(frozen=True, slots=True)
class Wake:
    """Send a `Tick` at time `at`, unless a later `Wake` named another time."""

    at: float


@dataclass(frozen=True, slots=True)
class Done:
    """Every byte was delivered."""


@dataclass(frozen=True, slots=True)
class GiveUp:
    """Bytes are missing and no source is left."""

    reason: str


Action = Fetch | Shorten | Abandon | Connect | Wake | Done | GiveUp
