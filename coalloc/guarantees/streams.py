"""Streams of packets that must get a rate in a share of the windows. Pure."""

from typing import NamedTuple

__all__ = ["Stream"]


class Stream(NamedTuple):
    """A stream with a window constraint (IQ-Paths, section IV).

    :param name: its name, unique among the streams of a transfer
    :param rate: bytes per second that it must get in each window; None for best effort: it gets what is left
    :param probability: the share of windows in which it must get them
    :param window: seconds of a window
    :param packet: bytes of a packet
    """

    name: str
    rate: float | None
    probability: float = 0.95
    window: float = 1.0
    packet: int = 1 << 16
