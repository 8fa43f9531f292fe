"""Checksums, and the bytes and files that they confirm. No behaviour, no I/O.

Offsets are bytes.
"""

from collections.abc import Awaitable, Callable
from typing import Literal, NamedTuple

__all__ = ["SUSPECTED", "Basis", "Checksum", "Confirm", "Extent", "PieceHashes"]

SUSPECTED = "its bytes are under suspicion"
"""Error of a corrupt source if it cannot be determined which source is wrong."""
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


class Extent(NamedTuple):
    """Bytes [start, end) that `source` (an index into the replicas) delivered, with their adler32 if it was kept."""

    start: int
    end: int
    source: int
    adler32: int | None = None
