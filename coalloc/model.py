"""The data types of a transfer: replicas, checksums, estimates, reports. No behaviour, no I/O.

Sizes and offsets are bytes, rates bytes per second, times seconds.
"""

import re
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, NamedTuple, TypeVar

__all__ = [
    "DATASET",
    "Basis",
    "Checksum",
    "Confirm",
    "Ending",
    "Entry",
    "Estimate",
    "Extent",
    "Kind",
    "Omission",
    "Origin",
    "Outcome",
    "PartialCopy",
    "PathState",
    "Phase",
    "PieceHashes",
    "Plan",
    "PlannedShare",
    "Replica",
    "ReplicaSet",
    "Results",
    "Snapshot",
    "SourceReport",
    "SourceState",
    "SourceView",
    "Stat",
    "Strategy",
    "TaskStatus",
    "TaskView",
    "TransferReport",
]

DATASET = re.compile(r"(?:[\w.-]+:)?/?[\w.+=@,~-]+(?:/[\w.+=@,~-]+)*")
"""Syntax of a broker's dataset names: a name, optionally preceded by a scope and a colon."""
Outcome = Literal["ok", "slow", "failed", "corrupt", "unused"]
SourceState = Literal["connecting", "idle", "fetching", "stalled", "waiting", "pausing", "dropped"]
Ending = Literal["whole", "shortened", "failed", "stalled"]
"""End of a partial copy; `shortened`: its remaining range was given to others, or they delivered it first."""
Phase = Literal["connecting", "fetching", "verifying", "done"]
Kind = Literal["file", "dir", "link", "other"]
TaskStatus = Literal["ACTIVE", "INACTIVE", "SUCCEEDED", "FAILED"]
Strategy = Literal["single", "brute", "history", "conservative", "aggressive", "adaptive"]
"""Names of the co-allocation strategies."""
Basis = Literal["given", "agree", "own word", "none"]
"""Basis on which a file was verified.

`given`: a checksum from the user or a Metalink. `agree`: each byte is the same at two replicas or more.
`own word`: some bytes were compared only with the checksum of the replica that sent them. `none`: some bytes were
compared with nothing.
"""
Confirm = Callable[[bool], Awaitable[None]]
"""Receives whether a complete file was compared with anything; raises an error if it must not get its name."""


class Checksum(NamedTuple):
    """A digest of a whole file: `algorithm` in lower case without dashes (adler32, md5, sha256), lower-case hex."""

    algorithm: str
    value: str


class PieceHashes(NamedTuple):
    """Hashes of consecutive pieces of `length` bytes (the last may be shorter), as in Metalink 4."""

    algorithm: str
    length: int
    values: tuple[str, ...]


class Origin(NamedTuple):
    """The origin of a replica's name, which determines the addresses to which the name may lead.

    `user`: the user's own input. `document`: a file on this machine, such as a Metalink. `server`: an answer of a
    server (a Metalink by URL, a broker, a redirect, a listing); `address` is then the numeric address of that server,
    None if it is not known.
    """

    kind: Literal["user", "document", "server"] = "user"
    address: str | None = None


class Replica(NamedTuple):
    """One place that has the file. Lower `priority` is better; `location` is an ISO 3166 country code."""

    url: str
    priority: int | None = None
    location: str | None = None
    origin: Origin = Origin()


class ReplicaSet(NamedTuple):
    """All information about one file before any server is asked.

    `left_out` are the URLs of replicas that will not be used because of an option, or because of the origin of their
    names, with the reason. `vouched`: there is a checksum of the file, or of its pieces, from the user or by https.
    `origin` is that of the file's own name.
    """

    name: str
    replicas: tuple[Replica, ...]
    size: int | None = None
    checksums: tuple[Checksum, ...] = ()
    pieces: PieceHashes | None = None
    left_out: tuple[tuple[str, str], ...] = ()
    vouched: bool = False
    origin: Origin = Origin()


class Stat(NamedTuple):
    """A server's information about its replica. `validator` changes when the file does (ETag, MDTM).

    A server that is not `ranged` can only send the whole file from its first byte. `rtt` is the round-trip time to it,
    if the engine knows it; it is no property of the replica.
    """

    size: int
    validator: str | None = None
    checksums: tuple[Checksum, ...] = ()
    ranged: bool = True
    rtt: float | None = None


class Entry(NamedTuple):
    """A name at a server and its properties; None for those that the server does not report.

    For a symbolic link most servers report the `kind` of its target; then only `link_target` shows that it is a link.
    `unique` identifies the target at that server, by whatever path it is reached. `modified` is in seconds since the
    epoch, `permissions` are octal, such as "0644".
    """

    name: str
    kind: Kind
    size: int | None = None
    modified: int | None = None
    permissions: str | None = None
    user: str | None = None
    group: str | None = None
    link_target: str | None = None
    unique: str | None = None


class Omission(NamedTuple):
    """Entries missing from a listing: entries that the server counts but does not name, or lines without a name.

    :param example: one of the lines; empty for entries that are not named
    """

    kind: Literal["hidden", "nameless"]
    entries: int
    example: str = ""


class PathState(NamedTuple):
    """The current path of a source's data, over all its connections.

    `rtt` is the longest current round-trip time, queues included; `disordered` counts the packets so far that arrived
    before an earlier one which was lost or late.
    """

    rtt: float
    disordered: int = 0


class Estimate(NamedTuple):
    """The forecast for a source: seconds until the first byte of a range, then bytes per second.

    `rate` is None while nothing is known. `reason` is one sentence for users. The rate should be within `bounds`, the
    p10 and p90 of its forecast, in four of five cases.
    """

    setup_seconds: float | None = None
    rate: float | None = None
    reason: str = ""
    bounds: tuple[float, float] | None = None


class Extent(NamedTuple):
    """Bytes [start, end) that `source` (an index into the replicas) delivered, with their adler32 if it was kept."""

    start: int
    end: int
    source: int
    adler32: int | None = None


class PartialCopy(NamedTuple):
    """Bytes [start, end) requested from one source; `end` includes later reductions.

    `bytes` are those that it delivered first. Times count from the beginning of the transfer: of the request, of the
    first and the last byte (None if none came), and of the end, with its kind (None while the copy runs).
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
    """The part of one source in one transfer. `seconds` is the time it was busy, set-up included.

    `ready_seconds` is the time from the beginning until it could first be used; None if it never could. `estimate` is
    its forecast, and `planned_bytes` its share at the start; None if the scheme assigns no shares.
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


class TransferReport(NamedTuple):
    """The results of a whole transfer; the JSON document of `coget --json` is made of it.

    `basis` is the basis of its verification. `notice` is one sentence of further information for users: why an
    earlier run's bytes were not used. `there`: the file existed at its place already, and nothing was fetched.
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

    @property
    def verified(self) -> bool:
        """Return whether a given checksum, or a second replica, confirms the whole file."""
        return self.basis in ("given", "agree")

    @property
    def compared(self) -> bool:
        """Return whether a checksum confirms the whole file, even if only that of the replica that sent it."""
        return self.basis != "none"


Report = TypeVar("Report")


@dataclass
class Results(Generic[Report]):
    """The results of a call, filled while it runs, so that its caller has them after an error or a cancellation, too.

    `done` are reports of complete files; `unfinished` is the report of what failed or was cancelled, as far as it got.
    `several`: the request named several files.
    """

    done: list[Report] = field(default_factory=list)
    unfinished: Report | None = None
    several: bool = False

    @contextmanager
    def of(self, report: Callable[[], Report]) -> Iterator[None]:
        """Keep the report of what fails, or is cancelled, in the block."""
        try:
            yield
        except BaseException:
            self.unfinished = report()
            raise

    @property
    def known(self) -> list[Report]:
        """All reports, that of the unfinished file last."""
        return [*self.done, *([] if self.unfinished is None else [self.unfinished])]


class PlannedShare(NamedTuple):
    """The expected part of one source. `error` is the reason why it would not be used."""

    url: str
    bytes: int
    fraction: float
    estimate: Estimate
    priority: int | None = None
    error: str | None = None


class Plan(NamedTuple):
    """The expected transfer of one file now. `seconds` is None while no rate is known.

    In four of five cases it should take a time within `bounds`, in seconds; None if no source's bounds are known.
    """

    name: str
    size: int
    strategy: str
    seconds: float | None
    rationale: str
    shares: tuple[PlannedShare, ...]
    checksums: tuple[Checksum, ...] = ()
    bounds: tuple[float, float] | None = None


class SourceView(NamedTuple):
    """The current state of one source for a progress display. `share` is its part of the bytes that have arrived."""

    url: str
    state: SourceState
    rate: float = 0.0
    bytes: int = 0
    share: float = 0.0
    error: str | None = None


class Snapshot(NamedTuple):
    """The current state of a transfer. `size` is None until the first server has answered."""

    name: str
    phase: Phase
    seconds: float
    done_bytes: int = 0
    resumed_bytes: int = 0
    size: int | None = None
    rate: float = 0.0
    eta_seconds: float | None = None
    sources: tuple[SourceView, ...] = ()


class TaskView(NamedTuple):
    """The current state of a task of a broker.

    `size` and `files` are the work found so far, which grows while the task reads folders; `ends` are the names of
    its collections; `begun`: work on it has begun; `waits` is the reason why it waits, if it does.
    `files_unverified` were copied and could not be verified, though they should have been;
    `left_out` are files that it skips, `folders_not_cleared` folders of the destination in which a sync deleted
    nothing, because of a doubt; `document` is the broker's complete answer.
    """

    id: str
    label: str | None
    kind: Literal["transfer", "delete"]
    status: TaskStatus
    ends: tuple[str, ...]
    requested: float
    begun: bool
    seconds: float
    done_bytes: int
    size: int
    rate: float
    eta_seconds: float | None
    files: int
    files_done: int
    files_skipped: int
    left_out: int
    failed: int
    faults: int
    waits: str
    error: str | None
    document: Mapping[str, Any]
    folders_not_cleared: int = 0
    files_unverified: int = 0

    @property
    def over(self) -> bool:
        """Return whether the task has ended."""
        return self.status in ("SUCCEEDED", "FAILED")

    @property
    def name(self) -> str:
        """The name shown to users: the label, or the collections."""
        return self.label or " to ".join(self.ends)

    @property
    def phase(self) -> str:
        """The current activity in a word or two."""
        if self.over:
            return "done" if self.status == "SUCCEEDED" else "failed"
        return "waiting" if self.waits or not self.begun else "under way"
