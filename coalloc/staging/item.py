"""A file that is to be collected, as servers know it; planners know it as a `File`."""

from collections.abc import Mapping
from dataclasses import dataclass

from coalloc.model import Checksum

__all__ = ["Item"]


@dataclass(frozen=True)
class Item:
    """One file.

    :param name: relative to the destination; what methods call it
    :param size: bytes
    :param paths: where it is, by the labels of the servers that hold it
    :param expected: its checksum, if that is known beforehand
    :param modified: seconds since the epoch, if known; changes with the file
    :param foreign: whether somebody else than the user chose its name: a directory's server, a Metalink, a broker
    """

    name: str
    size: int
    paths: Mapping[str, str]
    expected: Checksum | None = None
    modified: int | None = None
    foreign: bool = True
