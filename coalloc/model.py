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
    "DIRECTLY",
    "Basis",
    "Checksum",
    "Confirm",
    "Deadline",
    "DeadlineReport",
    "DeadlineView",
    "Ending",
    "Entry",
    "Estimate",
    "Extent",
    "Federation",
    "FoundReplicas",
    "Kind",
    "Omission",
    "Origin",
    "Outcome",
    "PartialCopy",
    "PathState",
    "Phase",
    "PieceHashes",
    "Plan",
    "PlannedRoute",
    "PlannedShare",
    "RateReport",
    "RateView",
    "ReadingRate",
    "Replica",
    "ReplicaSet",
    "Results",
    "RouteUse",
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
SUSPECTED = "its bytes are under suspicion"
"""Error of a corrupt source if it cannot be determined which source is wrong."""
SourceState = Literal["connecting", "idle", "fetching", "stalled", "waiting", "pausing", "dropped"]
Ending = Literal["whole", "shortened", "failed", "stalled"]
"""Ending of a partial copy; `shortened`: other sources got its remaining range, or delivered it first."""
Phase = Literal["connecting", "fetching", "verifying", "done"]
Kind = Literal["file", "dir", "link", "other"]
TaskStatus = Literal["ACTIVE", "INACTIVE", "SUCCEEDED", "FAILED"]
Strategy = Literal["single", "brute", "history", "conservative", "aggressive", "adaptive"]
"""Names of the co-allocation strategies."""
Basis = Literal["given", "agree", "own word", "none"]
"""Basis on which a file was verified.

`given`: a checksum from the user or a Metalink. `agree`: each byte is the same at two replicas or more.
`own word`: some bytes were compared only with the checksum of the replica that sent them. `none`: some bytes were not
compared with any checksum.
"""
Confirm = Callable[[bool], Awaitable[None]]
"""`await confirm(compared)`: raise an error if a complete file must not get its name. `compared`: by any checksum."""


class Checksum(NamedTuple):
    """A digest of a whole file: `algorithm` in lower case without dashes (sha256), `value` in lower-case hex."""

    algorithm: str
    value: str


class PieceHashes(NamedTuple):
    """Hashes of consecutive pieces of `length` bytes (the last may be shorter), as in Metalink 4."""

    algorithm: str
    length: int
    values: tuple[str, ...]


class Federation(NamedTuple):
    """A federation that the user named, and what its director states about tokens for a file.

    Its caches may get the user's token, over https only, because the user named the federation: no user knows its
    caches. `issuers` are the URLs of the servers that give suitable tokens.
    """

    host: str
    needs_token: bool
    issuers: tuple[str, ...]


class Origin(NamedTuple):
    """The origin of a replica's name, which determines the addresses to which the name may lead.

    `user`: the user's own input. `document`: a file on this machine, such as a Metalink. `server`: an answer of a
    server (a Metalink by URL, a broker, a redirect, a listing); `address` is then the numeric address of that server,
    None if unknown. `federation` is the one whose director named the replica, if the user named the federation.
    """

    kind: Literal["user", "document", "server"] = "user"
    address: str | None = None
    federation: Federation | None = None


class NamedBy(NamedTuple):
    """The answer in which the server of one replica named another one, unasked, by a `Link` header.

    :param url: URL of the answer, or of the Metalink to which its header led, without secrets
    :param redirecting: whether the answer was a redirect: then its server also chose the server of the first replica
    :param secure: whether it came over https
    """

    url: str
    redirecting: bool
    secure: bool


class Replica(NamedTuple):
    """A copy of the file at a server. Lower `priority` is better; `location` is an ISO 3166 country code.

    `named_by` is None for replicas that the user, the user's document or the user's broker named.
    """

    url: str
    priority: int | None = None
    location: str | None = None
    origin: Origin = Origin()
    named_by: NamedBy | None = None


class ReplicaSet(NamedTuple):
    """The description of a file before any server is asked.

    `left_out` are the URLs of replicas that an option, or the origin of their names, excludes, with the reason.
    `vouched`: a checksum of the file, or of its pieces, is known from the user or over https. `origin` is the origin of
    the file's own name.
    """

    name: str
    replicas: tuple[Replica, ...]
    size: int | None = None
    checksums: tuple[Checksum, ...] = ()
    pieces: PieceHashes | None = None
    left_out: tuple[tuple[str, str], ...] = ()
    vouched: bool = False
    origin: Origin = Origin()

    @property
    def guests(self) -> frozenset[int]:
        """The indices of the replicas that the servers of others named."""
        return frozenset(index for index, replica in enumerate(self.replicas) if replica.named_by)

    def without_guests(self) -> "ReplicaSet":
        """Return the file without the replicas that the servers of others named."""
        return self._replace(replicas=tuple(replica for replica in self.replicas if not replica.named_by))


class Stat(NamedTuple):
    """A server's information about its replica. `validator` changes when the file does (ETag, MDTM).

    A server that is not `ranged` can only send the whole file from its first byte. `rtt` is the round-trip time to the
    server in seconds, None if unknown; it is not a property of the replica. `unused` are checksums that the server
    states, but that cannot be compared: name and reason of each.
    """

    size: int
    validator: str | None = None
    checksums: tuple[Checksum, ...] = ()
    ranged: bool = True
    rtt: float | None = None
    unused: tuple[str, ...] = ()


class Entry(NamedTuple):
    """A name on a server and its properties; None for properties that the server does not report.

    For a symbolic link, most servers report the `kind` of its target; then only `link_target` shows that it is a link.
    `unique` identifies the file at the server, independent of the path. `modified` is in seconds since the epoch,
    `permissions` are octal, such as "0644".
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
    """The state of the network path of a source's data, over all its connections.

    `rtt` is the longest current round-trip time in seconds, including queues; `disordered` is the number of packets so
    far that arrived out of order, as an earlier packet was lost or late.
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


class FoundReplicas(NamedTuple):
    """A file, the forecasts for its replicas by URL, and its dataset name on the broker (None if no broker was asked).

    `measured` are the URLs whose forecasts rest on transfers over this very path; the other forecasts are guesses.
    """

    file: ReplicaSet
    expected: Mapping[str, Estimate]
    dataset: str | None = None
    measured: frozenset[str] = frozenset()


class Extent(NamedTuple):
    """Bytes [start, end) that `source` (an index into the replicas) delivered, with their adler32 if it was kept."""

    start: int
    end: int
    source: int
    adler32: int | None = None


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


DIRECTLY = "none"
"""Text of the direct route, as for `coget --via`."""


class RouteUse(NamedTuple):
    """The part of one route to a server in one transfer.

    :param route: depots, as for `coget --via`; "none" for the direct route
    :param seconds: time in which its sessions fetched
    :param opening_seconds: time until its first session was ready
    :param beginning: number of its first bytes, about 1 MiB if so many came
    :param beginning_seconds: time from the first request until these had arrived
    """

    route: str
    bytes: int
    seconds: float
    sessions: int
    opening_seconds: float
    beginning: int
    beginning_seconds: float


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


class Deadline(NamedTuple):
    """The time by which a file is to be complete, in seconds since the epoch, and the wanted probability of that."""

    at: float
    sure: float = 0.95


class DeadlineView(NamedTuple):
    """The probability, from 0 to 1, that a deadline is kept with all sources, as of `moment`; None while unknown.

    `later` is the time at which the file is complete with the wanted probability, None if unknown. Times are seconds
    since the epoch.
    """

    deadline: Deadline
    moment: float
    chance: float | None = None
    later: float | None = None


class DeadlineReport(NamedTuple):
    """A deadline, what was known of it at the start, warnings during the transfer, and the end; None if not complete.

    `spared` is the number of sources that were not needed.
    """

    first: DeadlineView
    warnings: tuple[DeadlineView, ...] = ()
    ended: float | None = None
    spared: int = 0

    @property
    def kept(self) -> bool:
        """Return whether the file was complete in time."""
        return self.ended is not None and self.ended <= self.first.deadline.at


class ReadingRate(NamedTuple):
    """The bytes per second that a reader is to get, and the share of the seconds in which it must get them."""

    rate: float
    share: float = 0.95


class RateView(NamedTuple):
    """The outlook, as of `moment`, for the rate that a reader was promised.

    `chance` is the probability, from 0 to 1, that the promise is kept until the end; None while it is measured.
    `possible` is the rate that could be promised with the same share of the seconds, None if unknown; `share` is the
    share of the seconds that could be promised at the wanted rate, None if there is none. `moment` is in seconds since
    the epoch.
    """

    wanted: ReadingRate
    moment: float
    chance: float | None = None
    possible: float | None = None
    share: float | None = None


class RateReport(NamedTuple):
    """A promised rate, what was known of it at the start, warnings, and the seconds in which the reader got less."""

    first: RateView
    warnings: tuple[RateView, ...] = ()
    seconds: int = 0
    missed: int = 0

    @property
    def kept(self) -> bool:
        """Return whether the reader got the rate in a sufficient share of the seconds."""
        return self.missed <= (1 - self.first.wanted.share) * self.seconds + 1e-9


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


class PlannedRoute(NamedTuple):
    """A route to a server: its depots, as for `coget --via`, and the expected seconds of a file of 1 MiB if known."""

    route: str
    seconds: float | None


class PlannedShare(NamedTuple):
    """The expected part of one source. `error` is the reason why the source would not be used.

    `routes` are its routes if depots may be used, the first one first; else empty.
    """

    url: str
    bytes: int
    fraction: float
    estimate: Estimate
    priority: int | None = None
    error: str | None = None
    routes: tuple[PlannedRoute, ...] = ()


class Plan(NamedTuple):
    """The plan for the transfer of one file now. `seconds` is the expected duration, None if no rate is known.

    In four of five cases, the duration should be within `bounds`, in seconds; None if no source's bounds are known.
    `deadline` is the outlook for the deadline that the user gave, and `needed` the number of sources, the first ones,
    with which its transfer would begin; None without a deadline, or if no rate is known.
    """

    name: str
    size: int
    strategy: str
    seconds: float | None
    rationale: str
    shares: tuple[PlannedShare, ...]
    checksums: tuple[Checksum, ...] = ()
    bounds: tuple[float, float] | None = None
    deadline: DeadlineView | None = None
    needed: int | None = None


class SourceView(NamedTuple):
    """The current state of one source for a display. `share` is its share of the arrived bytes, from 0 to 1."""

    url: str
    state: SourceState
    rate: float = 0.0
    bytes: int = 0
    share: float = 0.0
    error: str | None = None


class Snapshot(NamedTuple):
    """The current state of a transfer. `size` is None until the first server has answered.

    In nine of ten cases, the remaining seconds should be within `eta_bounds`. `warnings` are all warnings so far that
    the deadline or the promised rate may not be kept.
    """

    name: str
    phase: Phase
    seconds: float
    done_bytes: int = 0
    resumed_bytes: int = 0
    size: int | None = None
    rate: float = 0.0
    eta_seconds: float | None = None
    sources: tuple[SourceView, ...] = ()
    eta_bounds: tuple[float, float] | None = None
    deadline: DeadlineView | None = None
    warnings: tuple[DeadlineView | RateView, ...] = ()
    reading: RateView | None = None


class TaskView(NamedTuple):
    """The current state of a task of a broker.

    `size` and `files` are the work found so far, which grows while the task reads directories; `ends` are the names of
    its collections; `begun`: work on it has begun; `waits` is the reason why it does not move, or empty, and `remedy`
    what to do then. `files_unverified` were copied, but could not be verified as requested; `left_out` are files
    skipped because of errors, `folders_not_cleared` directories of the destination in which a sync deleted nothing, as
    it could not be sure which files are extra; `document` is the broker's complete answer.
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
    remedy: str = ""

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
