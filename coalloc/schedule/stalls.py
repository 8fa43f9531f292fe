"""The test whether a partial copy has stalled: relative to its source's own behaviour. Pure."""

from coalloc.schedule.state import RunningCopy

__all__ = ["SUSPICIOUS", "stalled"]

SILENCE, GAPS = 3.0, 8.0
"""Seconds of silence that are never a stall; factor of its longest gap so far for which a source may be silent."""
FIRST_BYTE, SETUPS = 15.0, 5.0
"""The same for the first byte, with the set-up time in place of the gap."""
SUSPICIOUS = 1.0
"""Seconds of silence after which a source that lost all its bytes to others has to reconnect."""


def stalled(copy: RunningCopy, setup: float, longest_gap: float, now: float) -> bool:
    """Return whether its silence is longer than the source's behaviour so far explains.

    :param setup: seconds from requesting a range from that source to its first byte
    :param longest_gap: longest silence of the source in seconds before it went on
    """
    if copy.last_byte_at is None:
        return copy.silence(now) > max(FIRST_BYTE, SETUPS * setup)
    return copy.silence(now) > max(SILENCE, GAPS * longest_gap)
