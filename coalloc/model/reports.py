"""The results of a transfer: of partial copies, of sources, and of the whole file. No I/O.

Sizes and offsets are bytes, rates bytes per second, times seconds.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Generic, Literal, NamedTuple, TypeVar

from coalloc.model.checksums import SUSPECTED, Basis, Checksum
from coalloc.model.forecasts import Estimate
from coalloc.model.promises import DeadlineReport, RateReport
from coalloc.model.routes import RouteUse

__all__ = ["Ending", "Outcome", "PartialCopy", "Results", "SourceReport", "TransferReport"]

Outcome = Literal["ok", "slow", "failed", "corrupt", "unused"]
Ending = Literal["whole", "shortened", "failed", "stalled"]
"""Ending of a partial copy; `shortened`: other sources got its remaining range, or delivered it first."""


class PartialCopy(NamedTuple):
    """Bytes [start, end) requested from one source; `end` includes later reductions.

    `bytes` is the number of bytes that no other source had delivered before. Times are seconds from the beginning of
    the transfer: of the request, of the first and the last byte (None if none came), and of the end (None while the
    copy runs).
    """

    start: int
    end: int
    bytes: int
    asked: float
    first_byte: float | None
    last_byte: float | None
    over: float | None = None
    ending: Ending | None = None


class SourceReport(NamedTuple):
    """The part of one source in one transfer. `seconds` is the time in which it was busy, set-up included.

    `ready_seconds` is the time from the beginning until it could first be used; None if it never could. `estimate` is
    its forecast, and `planned_bytes` its share at the start; None if the strategy assigns no shares. `routes` are its
    routes if depots may be used, else empty. `unused_checksums` are checksums that it states, but that could not be
    compared, or that the file does not have: name and reason of each. `named_by` is the URL of the answer in which
    another source named it by a `Link` header. `held_seconds` is the part of `seconds` in which it waited because of a
    limited rate.
    """

    url: str
    bytes: int = 0
    seconds: float = 0.0
    rate: float = 0.0
    ranges: int = 0
    streams: int = 1
    idle_seconds: float = 0.0
    setup_seconds: float | None = None
    outcome: Outcome = "unused"
    error: str | None = None
    copies: tuple[PartialCopy, ...] = ()
    ready_seconds: float | None = None
    estimate: Estimate = Estimate()
    planned_bytes: int | None = None
    routes: tuple[RouteUse, ...] = ()
    unused_checksums: tuple[str, ...] = ()
    named_by: str | None = None
    held_seconds: float = 0.0


class TransferReport(NamedTuple):
    """The results of a whole transfer, from which `coget --json` makes its document.

    `basis` is the basis of its verification. `notice` is a further sentence for users, such as the reason why an
    earlier run's bytes were not used. `there`: the file existed already at its destination, and nothing was fetched.
    """

    output: str
    size: int
    seconds: float
    rate: float
    strategy: str
    resumed_bytes: int
    duplicate_bytes: int
    checksum: Checksum | None
    basis: Basis
    rationale: str
    sources: tuple[SourceReport, ...] = ()
    notice: str | None = None
    there: bool = False
    deadline: DeadlineReport | None = None
    reading: RateReport | None = None

    @property
    def verified(self) -> bool:
        """Return whether a given checksum, or a second replica, confirms the whole file."""
        return self.basis in ("given", "agree")

    @property
    def compared(self) -> bool:
        """Return whether a checksum confirms the whole file, even if it is only from the replica that sent it."""
        return self.basis != "none"

    @property
    def contradicted(self) -> list[SourceReport]:
        """Return the sources that sent wrong bytes for certain."""
        return [each for each in self.sources if each.outcome == "corrupt" and each.error != SUSPECTED]


Report = TypeVar("Report")


@dataclass
class Results(Generic[Report]):
    """The results of a call, filled while it runs, so that its caller also has them after an error or a cancellation.

    `done` are reports of complete files; `unfinished` is the report of the file that failed or was cancelled.
    `several`: the request names several files.
    """

    done: list[Report] = field(default_factory=list)
    unfinished: Report | None = None
    several: bool = False

    @contextmanager
    def of(self, report: Callable[[], Report]) -> Iterator[None]:
        """Store `report()` as `unfinished` if the block fails or is cancelled."""
        try:
            yield
        except BaseException:
            self.unfinished = report()
            raise

    @property
    def known(self) -> list[Report]:
        """All reports, the unfinished file's last."""
        return [*self.done, *([] if self.unfinished is None else [self.unfinished])]
