"""A file to be collected, as servers know it; planners know it as a `File`."""

from collections.abc import Mapping
from dataclasses import dataclass

from coalloc.model import Checksum

__all__ = ["CollectItem"]


@dataclass(frozen=True)
class CollectItem:
    """One file.

    :param name: path relative to the destination; also its name in methods
    :param size: size in bytes
    :param paths: its paths, by the labels of the servers that hold it
    :param expected: its checksum, if known beforehand
    :param modified: time of modification, seconds since the epoch, if known; it changes with the file
    :param foreign: whether its name was not chosen by the user: by a directory's server, a Metalink, a broker
    """

    name: str
    size: int
    paths: Mapping[str, str]
    expected: Checksum | None = None
    modified: int | None = None
    foreign: bool = True
