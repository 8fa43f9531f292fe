"""A collection, many files from many hosts to one place: what is wanted, shown, and reported. No behaviour.

Sizes are bytes, rates bytes per second, times seconds from the beginning. Hosts are named as in a network: servers by
scheme, host and port, this machine as `HERE`.
"""

from collections.abc import Mapping
from typing import Literal, NamedTuple

from coalloc.model import Checksum

__all__ = [
    "HERE",
    "Collected",
    "CollectionPhase",
    "CollectionReport",
    "CollectionView",
    "LeftBehind",
    "PairReport",
    "PairView",
    "Stretch",
    "Wanted",
]

CollectionPhase = Literal["connecting", "collecting", "verifying", "done"]

HERE = "here"
"""What this machine is called among hosts."""


class Wanted(NamedTuple):
    """What is to be collected, and how.

    `sources` are URLs of files at GridFTP servers, or of directories if they end with a slash, Metalinks, or names of
    datasets that the broker knows. `to` is a directory of this machine, or the URL of one at a server; it is made if
    need be. `via` are URLs of servers that may relay, and of the directories in which they may stage pieces; sources
    may relay, too. `delegate` are hosts that may be given a limited proxy if they insist on one.
    may relay, too. `overwrite` lets files of directories, Metalinks and datasets replace those of other content.
    """

    sources: tuple[str, ...]
    to: str
    via: tuple[str, ...] = ()
    method: str | None = None
    broker: str | None = None
    data_hosts: frozenset[str] = frozenset()
    delegate: frozenset[str] = frozenset()
    overwrite: bool = False


class Collected(NamedTuple):
    """One file. `seconds` is when it had its name; None while it has not, or where it was there before.

    `checksum` is that of the file at its destination; `verified` says that its origin, or whoever named it, has the
    same. `error` says why it is not there.
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
    """A time in which something went from one host to another one without a pause: how much, in how many pieces."""

    begin: float
    end: float
    bytes: int
    pieces: int


class PairReport(NamedTuple):
    """What went from one host to another one, in how many pieces; `seconds` is the time in which any was on its way.

    `best_rate` is the most that went for a few seconds, None if it was never as long; what a way can carry is more like
    that than like `rate`, since it may be that no more was to go there. `error` is what was last wrong between them.
    Of very many `stretches` those between which the pause was shortest are told as one.
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


class LeftBehind(NamedTuple):
    """What could not be removed from a server in the end."""

    where: str
    reason: str


class CollectionReport(NamedTuple):
    """What a collection did. `seconds` is its makespan.

    `planned_seconds` and `direct_seconds` are what it was expected to be at best, and without relays; None where
    nothing was known of the ways.

    `duplicate_bytes` arrived though they were there, `mended_bytes` were wrong and came again from their origins.
    `staged_bytes` went to hosts in between, `peaks` are the most bytes that were there at once, by host. `gone` are
    hosts that were lost, with the reason.
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


class PairView(NamedTuple):
    """What goes from one host to another one now: pieces on their way or waiting, and what went so far."""

    source: str
    sink: str
    rate: float
    bytes: int
    waiting: int
    error: str | None = None


class CollectionView(NamedTuple):
    """A collection as it is now."""

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
