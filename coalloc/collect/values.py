"""A collect job, many files from many hosts to one place: its request, views and report. No behaviour.

Sizes are bytes, rates bytes per second, times seconds from the beginning. Hosts are named as in a network: servers by
scheme, host and port, this machine as `HERE`.
"""

from collections.abc import Mapping
from typing import Literal, NamedTuple

from coalloc.model.checksums import Checksum
from coalloc.model.promises import RateReport

__all__ = [
    "HERE",
    "CollectReport",
    "CollectRequest",
    "CollectView",
    "Collected",
    "CollectionPhase",
    "GuaranteedClass",
    "LeftBehind",
    "PairReport",
    "PairView",
    "Stretch",
]

CollectionPhase = Literal["connecting", "collecting", "verifying", "done"]

HERE = "here"
"""Name of this machine among hosts."""


class GuaranteedClass(NamedTuple):
    """The files whose names fit a pattern such as `*.h5`, in directories, too: they are to come at a rate.

    `rate` is in bytes per second, for all of them together; `share` is the share of the seconds at whose end as many
    bytes must have arrived as the rate asks for since the promise.
    """

    pattern: str
    rate: float
    share: float = 0.95


class CollectRequest(NamedTuple):
    """A request for a collect job.

    `sources` are URLs of files, or of directories if they end with a slash, Metalinks, or names of datasets that the
    broker knows. `to` is a directory of this machine, or the URL of one at a server; it is made if
    needed. `via` are URLs of servers that may relay, with the directories in which they may stage pieces; sources may
    relay, too. `delegate` are hosts that may get a limited proxy if they require one. `overwrite` lets files whose
    names come from a directory, a Metalink or a broker replace files with other content. `routes` are routes over
    depots for data between two servers, as for `api.data_routes`. `limit_rate` is the highest rate in bytes per second
    of what comes to this machine; None for no limit other than that of config.toml. `guarantees` are classes of files
    with guaranteed rates; a file belongs to the first one that fits, and all other files get what is left.
    """

    sources: tuple[str, ...]
    to: str
    via: tuple[str, ...] = ()
    method: str | None = None
    broker: str | None = None
    data_hosts: frozenset[str] = frozenset()
    delegate: frozenset[str] = frozenset()
    overwrite: bool = False
    routes: tuple[str, ...] = ()
    limit_rate: int | None = None
    guarantees: tuple[GuaranteedClass, ...] = ()


class Collected(NamedTuple):
    """One file. `seconds` is the time at which it got its name; None if it has not, or if it existed before.

    `checksum` is of the file at its destination; `verified` means that its origin, or the user's or Metalink's expected
    checksum, confirms it. `error` is the reason why the file is missing. If it could not be
    looked up, `name` may be a URL, and `output` is empty.
    """

    name: str
    output: str
    size: int
    outcome: Literal["collected", "there", "missing"] = "missing"
    seconds: float | None = None
    checksum: Checksum | None = None
    verified: bool = False
    error: str | None = None


class Stretch(NamedTuple):
    """A period of transfer from one host to another without a pause: the bytes, and the number of pieces."""

    begin: float
    end: float
    bytes: int
    pieces: int


class PairReport(NamedTuple):
    """All traffic from one host to another; `seconds` is the time in which any piece was on its way.

    `best_rate` is the highest rate over a few seconds, None if no transfer took that long. It is closer to the link's
    capacity than `rate`, which is lower when there was little to transfer. `error` is the last error between the hosts.
    If there are very many `stretches`, those with the shortest pauses between them are merged. `routes` are the routes
    that data took between two servers, in the order of their first use: depots, or "none" for the direct route.
    """

    source: str
    sink: str
    bytes: int = 0
    pieces: int = 0
    seconds: float = 0.0
    rate: float = 0.0
    best_rate: float | None = None
    error: str | None = None
    stretches: tuple[Stretch, ...] = ()
    routes: tuple[str, ...] = ()


class LeftBehind(NamedTuple):
    """A temporary file or directory that could not be removed from a server."""

    where: str
    reason: str


class CollectReport(NamedTuple):
    """The results of a collect job. `seconds` is its makespan.

    `planned_seconds` and `direct_seconds` are the planned makespans, with relays and without; None if no links were
    known.

    `duplicate_bytes` arrived a second time, `mended_bytes` were wrong and were fetched again from their origins.
    `staged_bytes` were sent to relays, `peaks` are the largest number of bytes that each host staged at once. `gone`
    are the lost hosts, with the reason. `cleared` are paths that a killed job had left, and that this one has removed.
    `loops` are the URLs of directories that were left out because their listings repeat. `guarantees` are the promises
    to classes of files, by their patterns. `unused` are the URLs of replicas that are not used, with the reason.
    """

    output: str
    size: int
    seconds: float
    method: str
    rationale: str
    planned_seconds: float | None
    direct_seconds: float | None
    files: tuple[Collected, ...]
    pairs: tuple[PairReport, ...]
    there_bytes: int = 0
    duplicate_bytes: int = 0
    mended_bytes: int = 0
    staged_bytes: int = 0
    peaks: Mapping[str, int] = {}
    gone: Mapping[str, str] = {}
    left: tuple[LeftBehind, ...] = ()
    cleared: tuple[str, ...] = ()
    loops: tuple[str, ...] = ()
    guarantees: Mapping[str, RateReport] = {}
    unused: Mapping[str, str] = {}


class PairView(NamedTuple):
    """Current traffic from one host to another: pieces on their way or waiting, and bytes so far."""

    source: str
    sink: str
    rate: float
    bytes: int
    waiting: int
    error: str | None = None


class CollectView(NamedTuple):
    """The current state of a collect job."""

    name: str
    phase: CollectionPhase
    seconds: float
    done_bytes: int
    size: int
    rate: float
    eta_seconds: float | None
    files: int
    files_done: int
    pairs: tuple[PairView, ...] = ()
    guarantees: Mapping[str, RateReport] = {}
