"""Analysis of a transfer's ranges: the rate of each source over time, and the ranges that other sources completed."""

from collections.abc import Sequence
from typing import NamedTuple

from broker.models.decisions import Range

__all__ = ["Incident", "incidents", "rates"]


class Incident(NamedTuple):
    """A range that its source did not complete.

    :param at: seconds from the start of the transfer
    :param ending: "shortened", "failed" or "stalled"
    :param missing: bytes of the range that other sources had to deliver
    :param by: numbers of the sources that were asked for these bytes
    """

    at: float
    source: int
    ending: str
    missing: int
    by: tuple[int, ...]


def rates(ranges: Sequence[Range], sources: int, seconds: float, steps: int) -> list[list[float]]:
    """Return the bytes per second of each source in each of `steps` equal parts of the time, as [source][step].

    A range counts as if its bytes had arrived evenly between the first and the last byte, or, if both arrived at the
    same moment, between the request and that moment.

    :param seconds: duration of the transfer
    """
    step = seconds / steps
    found = [[0.0] * steps for _ in range(sources)]
    if step <= 0:
        return found
    for each in ranges:
        if not each.bytes or each.last is None or each.first is None:
            continue
        begin = each.first if each.last > each.first else each.asked
        begin, end = (min(max(0.0, at), seconds) for at in (begin, each.last))
        if end <= begin:
            continue
        for i in range(int(begin / step), min(steps, int(end / step) + 1)):
            there = max(0.0, min(end, (i + 1) * step) - max(begin, i * step))
            found[each.source][i] += each.bytes * there / (end - begin) / step
    return found


def incidents(ranges: Sequence[Range]) -> list[Incident]:
    """Return the ranges that other sources had to deliver in part or in whole, in order of time."""
    found = []
    for each in ranges:
        if each.ending in (None, "whole"):
            continue
        at = each.over if each.over is not None else each.asked
        after = each.end if each.ending == "shortened" else each.start + each.bytes
        until = _until(each, ranges, at) if each.ending == "shortened" else each.end
        by = {o.source for o in ranges if o is not each and o.start < until and after < o.end and o.asked >= each.asked}
        found.append(Incident(at, each.source, str(each.ending), max(0, until - after), tuple(sorted(by))))
    return sorted(found)


def _until(shortened: Range, ranges: Sequence[Range], at: float) -> int:
    """Return the end of the bytes taken from a shortened range: the end of the range that begins behind it."""
    took = [each.end for each in ranges if each.start == shortened.end and shortened.asked <= each.asked <= at]
    return max(took, default=shortened.end)
