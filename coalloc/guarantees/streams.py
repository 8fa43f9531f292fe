"""Streams of packets that must get a rate in a share of the windows. Pure."""

from math import ceil
from typing import NamedTuple

__all__ = ["Stream"]


class Stream(NamedTuple):
    """A stream with a window constraint (IQ-Paths, section IV).

    :param name: its name, unique among the streams of a transfer
    :param rate: bytes per second that it must get in each window; None for best effort: it gets what is left
    :param probability: the share of windows in which it must get them
    :param window: seconds of a window
    :param packet: bytes of a packet
    :param peak: bytes per second up to which it precedes best effort; None if that is `rate`
    :param misses: mean number of packets of a window that may be late; None if `probability` decides
    """

    name: str
    rate: float | None
    probability: float = 0.95
    window: float = 1.0
    packet: int = 1 << 16
    peak: float | None = None
    misses: float | None = None

    @property
    def required(self) -> int:
        """Return the number of packets that must be served in a window: x in the paper."""
        return self._packets(self.rate or 0.0)

    @property
    def offered(self) -> int:
        """Return the number of packets that come in a window, y in the paper, as far as they precede best effort."""
        return max(self.required, self._packets(self.peak or 0.0))

    def _packets(self, rate: float) -> int:
        return ceil(round(rate * self.window / self.packet, 9))
