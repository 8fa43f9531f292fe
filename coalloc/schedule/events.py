"""Events of a transfer for the scheduler. Times are seconds on any steady clock."""

from typing import NamedTuple

from coalloc.model import PathState

__all__ = ["Event", "Failed", "Finished", "Held", "Ready", "Received", "Rejected", "Started", "Tick", "Waiting"]


class Started(NamedTuple):
    """The transfer begins; only `connected` sources are already connected or connecting."""

    at: float
    connected: tuple[int, ...] = ()


class Ready(NamedTuple):
    """Source `source` answered; its size is the agreed one. It can fetch now.

    If not `ranged`, it can only send the file from its first byte, so it is used alone or not at all. `rtt` is the
    round-trip time in seconds, if known.
    """

    at: float
    source: int
    ranged: bool = True
    rtt: float | None = None


class Waiting(NamedTuple):
    """Source `source` cannot be connected until other transfers free a connection to its server; `Ready` follows then.

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
    """Partial copy `copy` waits for admission, as the rate of its source is limited; if `over`, it is admitted.

    That is no failure, and may take as long as the copies admitted before it.
    """

    at: float
    copy: int
    over: bool = False


class Finished(NamedTuple):
    """Partial copy `copy` ended; all bytes before its end were delivered."""

    at: float
    copy: int


class Failed(NamedTuple):
    """Source `source` failed while connecting (`copy` None) or fetching. If `permanent`, it is not used again.

    `retry_after` is the number of seconds that its server asks to wait, if it does.
    """

    at: float
    source: int
    reason: str
    permanent: bool
    copy: int | None = None
    retry_after: float | None = None


class Rejected(NamedTuple):
    """Verification rejected `sources`: they are not used again, and the ranges [start, end) are missing again.

    `reason` describes the error. `restored` are sources of earlier rejections that were suspected without reason: they
    can be used again.
    """

    at: float
    sources: tuple[int, ...]
    ranges: tuple[tuple[int, int], ...]
    restored: tuple[int, ...] = ()
    reason: str = "it sent wrong bytes"


class Tick(NamedTuple):
    """Time has passed, as a `Wake` requested.

    `paths` are the paths of the sources' data; None where not known. `wanted` are the sources without work for whose
    connections other transfers of this machine wait.
    """

    at: float
    paths: tuple[PathState | None, ...] = ()
    wanted: tuple[int, ...] = ()


Event = Started | Ready | Waiting | Held | Received | Finished | Failed | Rejected | Tick
