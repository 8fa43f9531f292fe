"""A file to be collected, with its paths at servers; the planner's `File` has none."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from coalloc.model.checksums import Checksum, PieceHashes

__all__ = ["CollectItem"]


@dataclass(frozen=True)
class CollectItem:
    """One file.

    :param name: path relative to the destination; methods use the same name
    :param size: size in bytes
    :param paths: its paths, by the labels of the servers that hold it
    :param expected: its checksum, if known beforehand
    :param versions: by label, what changes when the file does at this server, such as its time of modification or its
        ETag; without the servers where that is not known
    :param foreign: whether a server's directory, a Metalink or a broker chose its name, and not the user
    :param pieces: hashes of its pieces from a Metalink, which decide if there is no expected checksum
    """

    name: str
    size: int
    paths: Mapping[str, str]
    expected: Checksum | None = None
    versions: Mapping[str, str] = field(default_factory=dict)
    foreign: bool = True
    pieces: PieceHashes | None = None

    @property
    def urls(self) -> tuple[str, ...]:
        """Its URLs, without logins; their queries may contain keys."""
        return tuple(f"{label}{path}" for label, path in self.paths.items())
