"""A file's replicas, the origin of their names, and what servers state about them. No behaviour, no I/O.

Sizes are bytes, times seconds.
"""

import re
from typing import Literal, NamedTuple

from coalloc.model.checksums import Checksum, PieceHashes

__all__ = ["DATASET", "Federation", "NamedBy", "Origin", "Replica", "ReplicaSet", "Stat"]

DATASET = re.compile(r"(?:[\w.-]+:)?/?[\w.+=@,~-]+(?:/[\w.+=@,~-]+)*")
"""Syntax of a broker's dataset names: a name, optionally preceded by a scope and a colon."""


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

    `named_by` is None for replicas that the user, the user's document or the user's broker named. `stated` is what a
    listing of the server states about it, if that has checksums.
    """

    url: str
    priority: int | None = None
    location: str | None = None
    origin: Origin = Origin()
    named_by: NamedBy | None = None
    stated: "Stat | None" = None


class TraceTarget(NamedTuple):
    """The address of a catalogue that counts the downloads of its files, and the file's part of a trace.

    :param url: URL of its interface
    :param fields: names and values that belong to the file
    """

    url: str
    fields: tuple[tuple[str, str], ...]


class ReplicaSet(NamedTuple):
    """The description of a file before any server is asked.

    `left_out` are the URLs of replicas that an option, or the origin of their names, excludes, with the reason.
    `vouched`: a checksum of the file, or of its pieces, is known from the user or over https. `origin` is the origin of
    the file's own name. `trace`: the catalogue to which the transfer is reported, if any.
    """

    name: str
    replicas: tuple[Replica, ...]
    size: int | None = None
    checksums: tuple[Checksum, ...] = ()
    pieces: PieceHashes | None = None
    left_out: tuple[tuple[str, str], ...] = ()
    vouched: bool = False
    origin: Origin = Origin()
    trace: TraceTarget | None = None

    @property
    def guests(self) -> frozenset[int]:
        """The indices of the replicas that another replica's server named."""
        return frozenset(index for index, replica in enumerate(self.replicas) if replica.named_by)

    def without_guests(self) -> "ReplicaSet":
        """Return the file without the replicas that another replica's server named."""
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
