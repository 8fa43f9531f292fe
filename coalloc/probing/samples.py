"""The steady rate of a flow, from samples of arriving bytes. Pure."""

from collections.abc import Sequence
from typing import NamedTuple

__all__ = ["Flowed", "Sample", "peak", "settled"]

PEAK_SECONDS = 5.0
"""Seconds over which the peak of a blast is averaged (Confluence, 3.2)."""


class Sample(NamedTuple):
    """Bytes that arrived at time `at`, in seconds on any steady clock."""

    at: float
    bytes: int


class Flowed(NamedTuple):
    """Bytes that arrived from `start` to `end`."""

    start: float
    end: float
    bytes: int

    @property
    def rate(self) -> float:
        """Bytes per second."""
        return self.bytes / (self.end - self.start)


def settled(began: float, samples: Sequence[Sample]) -> Flowed | None:
    """Return the bytes of the second half of the time, when TCP has found its rate; all bytes if they arrived at once.

    :param began: time of the request
    """
    if not samples or samples[-1].at <= began:
        return None
    first, last = samples[0].at, samples[-1].at
    if last == first:
        return Flowed(began, last, sum(sample.bytes for sample in samples))
    middle = (first + last) / 2
    start = max(sample.at for sample in samples if sample.at <= middle)
    return Flowed(start, last, sum(sample.bytes for sample in samples if sample.at > start))


def peak(began: float, samples: Sequence[Sample]) -> Flowed | None:
    """Return the 5 seconds with the most bytes; if the samples cover less than 10 seconds, the result of `settled`.

    :param samples: samples in order of time
    """
    if not samples or samples[-1].at - began < 2 * PEAK_SECONDS:
        return settled(began, samples)
    best, total, first = Flowed(began, began + PEAK_SECONDS, 0), 0, 0
    for sample in samples:
        total += sample.bytes
        while samples[first].at <= sample.at - PEAK_SECONDS:
            total -= samples[first].bytes
            first += 1
        if total > best.bytes and sample.at - PEAK_SECONDS >= began:
            best = Flowed(sample.at - PEAK_SECONDS, sample.at, total)
    return best
