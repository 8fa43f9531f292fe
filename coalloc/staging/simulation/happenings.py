"""What a network does by itself, at which second: its links change, its hosts die. In the order of time."""

from typing import NamedTuple

__all__ = ["Break", "Capacity", "Happening", "Kill", "Rate", "Share"]


class Capacity(NamedTuple):
    """From now on a link carries so many bytes per second."""

    at: float
    link: str
    bytes_per_second: float


class Rate(NamedTuple):
    """From now on a stream that has a rate of its own takes so many bytes per second."""

    at: float
    stream: str
    bytes_per_second: float


class Share(NamedTuple):
    """From now on a pair, or a stream that shares, takes so much of a bottleneck in proportion to others.

    TCP with a short round trip takes more than with a long one, and none takes always the same.
    """

    at: float
    of: tuple[str, str] | str
    share: float


class Break(NamedTuple):
    """The connection of a pair breaks: the hop that it carries fails, those behind it go on."""

    at: float
    source: str
    sink: str


class Kill(NamedTuple):
    """A host dies, with what is staged there."""

    at: float
    host: str


Happening = Capacity | Rate | Share | Break | Kill
