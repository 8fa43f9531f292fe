"""Events of a transfer for the scheduler. Times are seconds of a monotonic clock."""

from typing import NamedTuple

from coalloc.model.routes import PathState

__all__ = [
    "Event",
    "Failed",
    "Finished",
    "Held",
    "Opened",
    "Ready",
    "Received",
    "Rejected",
    "SourceLimit",
    "Started",
    "Tick",
    "Waiting",
]


class Started(NamedTuple):
    """The transfer begins; only `connected` sources are already connected or connecting."""

    at: float
    connected: tuple[int, ...] = ()


class Ready(NamedTuple):
    """Source `source` answered with the agreed file size, and can fetch now.

    If not `ranged`, it can send the file only from byte 0, so it is used alone or not at all. `rtt` is the round-trip
    time in seconds, if known.
    """

    at: float
    source: int
    ranged: bool = True
    rtt: float | None = None


class Waiting(NamedTuple):
    """Source `source` waits until other transfers free a connection to its server; `Ready` follows then.

    This is not a failure, and may take as long as those transfers.
    """

    at: float
    source: int
    reason: str


class Received(NamedTuple):
    """Bytes [start, end) of partial copy `copy` arrived, and are being written to disk."""

    at: float
    copy: int
    start: int
    end: int


class Held(NamedTuple):
    """Partial copy `copy` waits for admission, as the rate of its source is limited; if `over`, it no longer waits.

    This is not a failure, and may take as long as the copies admitted before.
    """

    at: float
    copy: int
    over: bool = False


class Finished(NamedTuple):
    """Partial copy `copy` delivered all its bytes up to its present end."""

    at: float
    copy: int


class Failed(NamedTuple):
    """Source `source` failed while connecting (`copy` is None) or fetching. If `permanent`, it is not used again.

    `retry_after` is the delay in seconds that its server requests, if any.
    """

    at: float
    source: int
    reason: str
    permanent: bool
    copy: int | None = None
    retry_after: float | None = None


class Rejected(NamedTuple):
    """Verification rejected `sources`, which are not used again; the bytes of `ranges` are missing again.

    `reason` describes the error. `restored` are sources rejected earlier that proved to be right; they can be used
    again.
    """

    at: float
    sources: tuple[int, ...]
    ranges: tuple[tuple[int, int], ...]
    restored: tuple[int, ...] = ()
    reason: str = "it sent wrong bytes"


class Opened(NamedTuple):
    """All bytes before `end` may be fetched from now on, as there is room for them."""

    at: float
    end: int


class SourceLimit(NamedTuple):
    """The number of sources that may be used at once is now `most`, at least 1; the `preferred` ones stay."""

    at: float
    most: int
    preferred: tuple[int, ...] = ()


class Tick(NamedTuple):
    """The time requested by a `Wake` has come.

    `paths` are the states of the sources' network paths, None if unknown. `wanted` are the sources without work whose
    connections other transfers on this machine are waiting for. `queueing` are those to which a range can be requested
    while another one is under way, which it follows without a pause.
    """

    at: float
    paths: tuple[PathState | None, ...] = ()
    wanted: tuple[int, ...] = ()
    queueing: tuple[int, ...] = ()


Event = Opened | SourceLimit | Started | Ready | Waiting | Held | Received | Finished | Failed | Rejected | Tick
