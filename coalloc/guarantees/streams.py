"""Streams of packets that must get a rate in a share of the windows. Pure."""

from math import ceil
from typing import NamedTuple

from coalloc.errors import UsageError

__all__ = ["Stream", "check_promise"]

HIGHEST = 2.0**63
"""Bytes per second that no rate reaches."""
LEAST_SHARE, MOST_SHARE = 0.5, 0.999


def check_promise(rate: float, share: float) -> None:
    """Check a rate that a user asks for, in bytes per second, and the share of the seconds in which to have it.

    :raises UsageError: if one of them is not a number within its limits
    """
    if not 1 <= rate < HIGHEST:
        raise UsageError(f"{rate} bytes per second cannot be promised", "use a rate of at least 1, such as '5 MB/s'")
    if not LEAST_SHARE <= share <= MOST_SHARE:
        raise UsageError(
            f"{100 * share:g} % of the seconds cannot be promised",
            f"use a share from {100 * LEAST_SHARE:g} to {100 * MOST_SHARE:g} %",
        )


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
