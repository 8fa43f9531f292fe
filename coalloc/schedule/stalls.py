"""When a partial copy counts as stalled: judged against its source's own ways, never by an absolute limit. Pure."""

from coalloc.schedule.state import Copy

__all__ = ["SUSPICIOUS", "stalled"]

SILENCE, GAPS = 3.0, 8.0
"""Seconds of silence that are never a stall; how many times its longest gap so far a source may be silent."""
FIRST_BYTE, SETUPS = 15.0, 5.0
"""The same for the first byte, counted in its set-up times."""
SUSPICIOUS = 1.0
"""Seconds of silence after which a source that was relieved of everything has to connect anew."""


def stalled(copy: Copy, setup: float, longest_gap: float, now: float) -> bool:
    """Whether its silence is more than the source's own ways explain.

    :param setup: seconds from asking that source for a range to its first byte
    :param longest_gap: seconds that it was silent, at most, before it went on
    """
    if copy.last_byte_at is None:
        return copy.silence(now) > max(FIRST_BYTE, SETUPS * setup)
    return copy.silence(now) > max(SILENCE, GAPS * longest_gap)
