"""What happens to a transfer, as the scheduler is told it. Times are seconds on any steady clock."""

from dataclasses import dataclass

__all__ = ["Event", "Failed", "Finished", "Ready", "Received", "Rejected", "Started", "Tick"]


@dataclass(frozen=True, slots=True)
class Started:
    """The transfer begins; nothing is connected yet."""

    at: float


@dataclass(frozen=True, slots=True)
class Ready:
    """Source `source` answered; its size is the agreed one. It can fetch now.

    If not `ranged`, it can only send the file from its first byte, so it is used alone or not at all.
    """

    at: float
    source: int
    ranged: bool = True


@dataclass(frozen=True, slots=True)
class Received:
    """Bytes [start, end) arrived through partial copy `copy` and are on their way to disk."""

    at: float
    copy: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Finished:
    """Partial copy `copy` ended; all bytes before its end were delivered."""

    at: float
    copy: int


@dataclass(frozen=True, slots=True)
class Failed:
    """Source `source` failed while connecting (`copy` None) or fetching. If `permanent`, it is of no more use.

    `retry_after` is how many seconds its server wants to be left alone, if it said so.
    """

    at: float
    source: int
    reason: str
    permanent: bool
    copy: int | None = None
    retry_after: float | None = None


@dataclass(frozen=True, slots=True)
class Rejected:
    """Verification found `sources` wrong: they are used no more, and the ranges [start, end) are missing again.

    `restored` are sources of earlier rejections that were suspected without reason: they can be used again.
    """

    at: float
    sources: tuple[int, ...]
    ranges: tuple[tuple[int, int], ...]
    restored: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed; a `Wake` asked for this."""

    at: float


Event = Started | Ready | Received | Finished | Failed | Rejected | Tick
