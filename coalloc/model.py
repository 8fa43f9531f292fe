"""The values that travel through a transfer: replicas, checksums, estimates, reports. No behaviour, no I/O.

Sizes and offsets are bytes, rates bytes per second, times seconds.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Literal, NamedTuple

__all__ = [
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
    "Phase",
    "PieceHashes",
    "Plan",
    "PlannedShare",
    "Replica",
    "ReplicaSet",
    "Snapshot",
    "SourceReport",
    "SourceState",
    "SourceView",
    "Stat",
    "TaskStatus",
    "TaskView",
    "TransferReport",
    "Way",
]

Outcome = Literal["ok", "slow", "failed", "corrupt", "unused"]
SourceState = Literal["connecting", "idle", "fetching", "stalled", "waiting", "pausing", "left"]
Ending = Literal["whole", "relieved", "failed", "stalled"]
"""How a partial copy ended; `relieved`: others were given what was left of it, or delivered it first."""
Phase = Literal["connecting", "fetching", "verifying", "done"]
Kind = Literal["file", "dir", "link", "other"]
TaskStatus = Literal["ACTIVE", "INACTIVE", "SUCCEEDED", "FAILED"]
Basis = Literal["given", "agree", "own word", "none"]
"""With what a file was compared.

`given`: a checksum that the user or a Metalink gave. `agree`: each byte is the same at two replicas or more.
`own word`: some of it is only what its own replica says that it should be. `none`: some was compared with nothing.
"""
Confirm = Callable[[bool], Awaitable[None]]
"""Is told whether a file that is whole was compared with anything; raises an error where it is not to get its name."""


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
    """The origin of a replica's name, which decides what the name may reach.

    `user`: the user's own words. `document`: a file on this machine, such as a Metalink. `server`: an answer of a
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
    """All that was said about one file before any server was asked.

    `left_out` are the URLs of replicas that will not be used because of an option, or because of where their names came
    from, with the reason. `vouched`: there is a checksum of the file, or of its pieces, that the user gave or that came
    by https. `origin` is that of the file's own name.
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
    """What a server says about its replica. `validator` changes when the file does (ETag, MDTM).

    A server that is not `ranged` can only send the whole file from its first byte. `rtt` is the round trip to it, as
    far as the engine knows: it says nothing about the replica.
    """

    size: int
    validator: str | None = None
    checksums: tuple[Checksum, ...] = ()
    ranged: bool = True
    rtt: float | None = None


class Entry(NamedTuple):
    """A name at a server and what it stands for; None is what the server does not say.

    Most servers tell the `kind` of what a symbolic link leads to; then `link_target` alone shows that it is one.
    `unique` tells what it leads to from all else at that server, by whatever path it is reached. `modified` is in
    seconds since the epoch, `permissions` are octal, such as "0644".
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
    """What a listing leaves out: entries that the server counts and does not name, or lines that name nothing.

    :param example: one of the lines; empty for entries that are not named
    """

    kind: Literal["hidden", "nameless"]
    entries: int
    example: str = ""


class Way(NamedTuple):
    """How the data of a source come to us at the moment, over all its connections.

    `rtt` is the longest round trip now, queues included; `disordered` counts the packets so far that came before one
    which was lost, or late.
    """

    rtt: float
    disordered: int = 0


class Estimate(NamedTuple):
    """What is expected of a source: seconds until the first byte of a range, then bytes per second.

    `rate` is None while nothing is known. `reason` is one sentence for people. In four of five cases the rate should be
    within `bounds`, the p10 and p90 of its forecast.
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
    """Bytes [start, end) as they were asked of one source; `end` is where it was told to stop in the end.

    `bytes` are those that it delivered first. Times count from the beginning of the transfer: when it was asked,
    when its first and its last byte came (None if none came), and when it was over, with how it ended (None while it
    runs).
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
    """What one source did in one transfer. `seconds` is the time it was busy, set-up included.

    `ready_seconds` is when it could first be asked, counted from the beginning; None if it never could. Beside that
    what was expected of it, and the bytes that it was given at the start; None where the scheme gives out no shares.
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
    """What a whole transfer did; the JSON document of `coget --json` is made of it.

    `basis` is with what all of it was compared. `notice` says in one sentence what people should know beside it: why an
    earlier run's bytes were not used. `there`: the file was at its place already, and nothing was fetched.
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
        """Whether a checksum that was given, or a second replica, says that all of it is right."""
        return self.basis in ("given", "agree")

    @property
    def compared(self) -> bool:
        """Whether all of it is as a checksum says, be it that of the replica that it came from."""
        return self.basis != "none"


class PlannedShare(NamedTuple):
    """What one source is expected to do. `error` says why it would not be used."""

    url: str
    bytes: int
    fraction: float
    estimate: Estimate
    priority: int | None = None
    error: str | None = None


class Plan(NamedTuple):
    """How one file would be fetched now. `seconds` is None while no rate is known.

    In four of five cases it should take as many seconds as `bounds` say; None where no source's bounds are known.
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
    """One source as a progress display shows it now. `share` is its part of the bytes that are here."""

    url: str
    state: SourceState
    rate: float = 0.0
    bytes: int = 0
    share: float = 0.0
    error: str | None = None


class Snapshot(NamedTuple):
    """A transfer as it is now. `size` is None until the first server has answered."""

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
    """A task that a broker does, as it is now.

    `size` and `files` are what it has found to do so far, which grows while it reads folders; `ends` are the names of
    its collections; `begun` says whether anybody has begun with it, and `waits` for what it waits, if it does.
    `files_unverified` are those that were copied and could not be verified, though they should have been;
    `left_out` are files that it goes on without, `folders_not_cleared` those of the destination in which a sync deleted
    nothing, for a doubt; `document` is all that the broker says.
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
        """Whether nothing will happen any more."""
        return self.status in ("SUCCEEDED", "FAILED")

    @property
    def name(self) -> str:
        """What people know it by."""
        return self.label or " to ".join(self.ends)

    @property
    def phase(self) -> str:
        """What it does, in a word or two."""
        if self.over:
            return "done" if self.status == "SUCCEEDED" else "failed"
        return "waiting" if self.waits or not self.begun else "under way"
