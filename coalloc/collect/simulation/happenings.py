"""Changes of a simulated network, in order of time: links change their capacities, connections break, hosts die."""

from typing import NamedTuple

__all__ = ["Break", "Capacity", "Happening", "Kill", "Rate", "RateShare"]


class Capacity(NamedTuple):
    """A new capacity of a link, in bytes per second."""

    at: float
    link: str
    bytes_per_second: float


class Rate(NamedTuple):
    """A new rate of a stream that has a rate of its own, in bytes per second."""

    at: float
    stream: str
    bytes_per_second: float


class RateShare(NamedTuple):
    """A new share of a pair, or of a stream that shares fairly, at a bottleneck, in proportion to others.

    TCP with a short round-trip time takes more than with a long one, and its share always varies.
    """

    at: float
    of: tuple[str, str] | str
    share: float


class Break(NamedTuple):
    """A break of a pair's connection: its current hop fails, those behind it continue."""

    at: float
    source: str
    sink: str


class Kill(NamedTuple):
    """The death of a host, with the pieces staged there."""

    at: float
    host: str


Happening = Capacity | Rate | RateShare | Break | Kill
