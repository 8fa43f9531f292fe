"""The test for a stalled partial copy, relative to the usual behaviour of its source. Pure."""

from coalloc.schedule.sources import RunningCopy

__all__ = ["SUSPICIOUS", "stalled"]

SILENCE, GAPS = 3.0, 8.0
"""Longest silence that is not a stall: in seconds, or as a multiple of the source's longest gap so far."""
FIRST_BYTE, SETUPS = 15.0, 5.0
"""The same before the first byte: in seconds, or as a multiple of the set-up time."""
SUSPICIOUS = 1.0
"""Seconds of silence after which a source must reconnect if others have taken over all its bytes."""


def stalled(copy: RunningCopy, setup: float, longest_gap: float, now: float) -> bool:
    """Return whether a copy has been silent for longer than is usual for its source.

    :param setup: usual seconds from requesting a range from the source to its first byte
    :param longest_gap: longest silence in seconds after which the source continued
    """
    if copy.last_byte_at is None and not copy.queued:  # a queued one follows its source's earlier copy without a pause
        return copy.silence(now) > max(FIRST_BYTE, SETUPS * setup)
    return copy.silence(now) > max(SILENCE, GAPS * longest_gap)
