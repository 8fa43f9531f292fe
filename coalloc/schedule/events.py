"""What happens to a transfer, as the scheduler is told it. Times are seconds on any steady clock."""

from typing import NamedTuple

from coalloc.model import Way

__all__ = ["Event", "Failed", "Finished", "Held", "Ready", "Received", "Rejected", "Started", "Tick", "Waiting"]


class Started(NamedTuple):
    """The transfer begins; only `connected` sources were asked for a connection already, or have one."""

    at: float
    connected: tuple[int, ...] = ()


class Ready(NamedTuple):
    """Source `source` answered; its size is the agreed one. It can fetch now.

    If not `ranged`, it can only send the file from its first byte, so it is used alone or not at all. `rtt` is the
    round trip to it, in seconds, if that is known.
    """

    at: float
    source: int
    ranged: bool = True
    rtt: float | None = None


class Waiting(NamedTuple):
    """Source `source` cannot be connected before transfers of others let go of its server; `Ready` follows then.

    That is no failure, and may take as long as those transfers.
    """

    at: float
    source: int
    reason: str


class Received(NamedTuple):
    """Bytes [start, end) arrived through partial copy `copy` and are on their way to disk."""

    at: float
    copy: int
    start: int
    end: int


class Held(NamedTuple):
    """Partial copy `copy` waits for leave to ask for more, as the rate of its source is limited; if `over`, it has it.

    That is nobody's fault, and may take as long as others have leave before it.
    """

    at: float
    copy: int
    over: bool = False


class Finished(NamedTuple):
    """Partial copy `copy` ended; all bytes before its end were delivered."""

    at: float
    copy: int


class Failed(NamedTuple):
    """Source `source` failed while connecting (`copy` None) or fetching. If `permanent`, it is of no more use.

    `retry_after` is how many seconds its server wants to be left alone, if it said so.
    """

    at: float
    source: int
    reason: str
    permanent: bool
    copy: int | None = None
    retry_after: float | None = None


class Rejected(NamedTuple):
    """Verification found `sources` wrong: they are used no more, and the ranges [start, end) are missing again.

    `reason` says what is wrong. `restored` are sources of earlier rejections that were suspected without reason: they
    can be used again.
    """

    at: float
    sources: tuple[int, ...]
    ranges: tuple[tuple[int, int], ...]
    restored: tuple[int, ...] = ()
    reason: str = "it sent wrong bytes"


class Tick(NamedTuple):
    """Time has passed; a `Wake` asked for this.

    `ways` say how the data of each source come; None where not known. `wanted` are the sources without work for whose
    connections others of this machine wait.
    """

    at: float
    ways: tuple[Way | None, ...] = ()
    wanted: tuple[int, ...] = ()


Event = Started | Ready | Waiting | Held | Received | Finished | Failed | Rejected | Tick
