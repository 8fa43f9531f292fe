"""The groups that a transfer belongs to, from fine to coarse: the keys under which experience is kept.

Context matters more than a refined model of time: on real logs the class of sizes alone halves the error of a
forecast.
"""

from bisect import bisect_right
from collections.abc import Callable, Mapping

from predictors.observation import Observation, Query

__all__ = ["LEVELS", "SIZES", "Key", "Level", "site", "size_class"]

SIZES = (1e6, 4e6, 16e6, 64e6, 256e6, 1e9, 4e9, 16e9)
"""Upper limits of the size classes, in bytes: rates grow with size until set-up no longer matters."""

Key = tuple[str | int, ...]
Level = Callable[[Query | Observation], Key]


def size_class(nbytes: float) -> int:
    """Return the class of a size.

    >>> size_class(0), size_class(5e6), size_class(1e12)
    (0, 2, 8)
    """
    return bisect_right(SIZES, nbytes)


def _path(of: Query | Observation) -> Key:
    return (of.source, of.sink, of.direction)


def site(address: str) -> str:
    """Return the domain of a host, which its neighbours share, or the address itself if it has none.

    >>> site("gsiftp://dtn03.example.org:2811"), site("10.0.0.7"), site("2001:db8::7"), site("ftp://[2001:db8::7]:21")
    ('example.org', '10.0.0.7', '2001:db8::7', '2001:db8::7')
    """
    host = address.rpartition("//")[2].partition("/")[0].rpartition("@")[2]
    if host.count(":") > 1:  # IPv6
        return host.rpartition("]")[0].lstrip("[") or host
    host = host.partition(":")[0]
    domain = host.partition(".")[2]
    return domain if "." in domain and not host.replace(".", "").isdigit() else host


LEVELS: Mapping[str, Level] = {
    "path, kind and size": lambda of: (*_path(of), of.file_class, size_class(of.bytes or 0)),
    "path and size": lambda of: (*_path(of), size_class(of.bytes or 0)),
    "path": _path,
    "sites": lambda of: (site(of.source), site(of.sink), of.direction),
    "source": lambda of: (of.source, of.direction),
    "sink": lambda of: (of.sink, of.direction),
    "size": lambda of: (of.direction, size_class(of.bytes or 0)),
    "all": lambda of: (of.direction,),
}
"""All groups of a transfer, the finest first; the last contains all transfers in the same direction.

A path is a pair of hosts and a direction. A path without transfers can be forecast from its source's transfers to other
sinks, or its sink's transfers from other sources; without these, from all transfers.
"""
