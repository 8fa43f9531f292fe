"""`in order`: adaptive co-allocation for a reader that takes the bytes in order, from a bounded buffer.

The bytes ahead of the reader are opened step by step. Each source takes the first bytes that no source fetches, as many
as it delivers while the others deliver theirs, so that no byte keeps the reader waiting for long. Sources without work
steal as in `adaptive`.
"""

from math import inf

from coalloc.schedule.policies.adaptive import Adaptive
from coalloc.schedule.policies.base import Choice, Shares, Take, first_unassigned
from coalloc.schedule.sources import ScheduledSource
from coalloc.schedule.state import State

__all__ = ["InOrder"]

AHEAD = 0.5
"""Part of the buffer that the ranges of all sources have together, so that the next ones are open when they end."""
LEAST = 1 << 20
"""Minimum bytes of a range, unless a source takes too long for it: enough deliveries to measure a rate."""
SMALLEST = 1 << 16
"""Minimum bytes of a range of any source."""
SECONDS, SETUPS = 2.0, 16.0
"""Maximum seconds of a range, and set-up times that it may last if that is longer."""


class InOrder(Adaptive):
    """The choice of the next range for a reader.

    :param buffer: bytes that may be open at once
    :param pace: bytes per second that the reader takes; None if as many as arrive
    """

    def __init__(self, buffer: int, *, widens: bool = True, pace: float | None = None) -> None:
        super().__init__(widens=widens)
        self._buffer = buffer
        self._pace = inf if pace is None else pace

    def shares(self, state: State, now: float) -> Shares:
        return {}

    def choose(self, state: State, source: ScheduledSource, now: float) -> Choice | None:
        first = first_unassigned(state)
        if first is None:
            return super().choose(state, source, now)
        return Take(first.start, min(first.end, first.start + self._range(state, source, now)))

    def _range(self, state: State, source: ScheduledSource, now: float) -> int:
        rates = {each.index: self._rate(state, each, now) for each in state.sources if each.usable}
        seconds = AHEAD * self._buffer / max(1.0, sum(rates.values()))
        longest = max(SECONDS, SETUPS * state.setup(source))
        most = max(SMALLEST, int(rates[source.index] * longest))  # the reader waits for all of it
        return min(most, max(LEAST, int(rates[source.index] * seconds)))

    def _rate(self, state: State, source: ScheduledSource, now: float) -> float:
        """Return the expected rate of a source; if it was not measured, at most what the reader takes.

        It is at least the rate of the last range with its set-up, as the meter sees no range that arrives at once.
        """
        rate = state.rate(source, now)
        return max(rate if source.meter.rate(now) else min(rate, self._pace), _rate_of_last_range(source))

    def explain(self, state: State, now: float) -> str:
        return "in order: each source fetches the next bytes of a buffer ahead of the reader"


def _rate_of_last_range(source: ScheduledSource) -> float:
    last = source.ended[-1] if source.ended else None
    if last is None or last.ending != "whole" or last.over_at is None:
        return 0.0
    seconds = last.over_at - last.requested_at - last.held(last.over_at)
    return last.bytes / seconds if seconds > 0 else 0.0
