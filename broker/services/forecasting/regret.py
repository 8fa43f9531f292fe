"""The best result that a transfer's sources could have reached, computed in hindsight. Pure.

Each source has a time from which its bytes could flow, and a rate at which they then did: the bytes that it delivers
until T are a straight line. With the best shares all sources end together (water filling); no other shares end sooner,
because no more bytes could have arrived by then. The distance of the planned shares from that is due to the forecasts.
The actual transfer may be better or worse than the plan; that is due to the strategy.
"""

from collections.abc import Sequence
from math import inf
from typing import NamedTuple

__all__ = ["Able", "Hindsight", "hindsight"]


ROUNDING = 1e-7
"""Share of the bytes that may be missing at a turn: by rounding, they might come only when the next source begins."""


class Able(NamedTuple):
    """The ability of a source to deliver.

    :param start: seconds from the beginning of the transfer until its bytes could flow
    :param rate: bytes per second from then on
    :param most: bytes that it could deliver in all: it failed after these
    :param planned: bytes of its planned share; None if no shares were planned
    """

    start: float
    rate: float
    most: float = inf
    planned: int | None = None

    def until(self, level: float) -> float:
        """Return the bytes that it could have delivered by `level`, in seconds from the beginning."""
        return min(self.most, max(0.0, level - self.start) * self.rate)

    def needs(self, size: float) -> float:
        """Return the seconds until it could have delivered so many bytes; infinity if it failed before."""
        return inf if size > self.most else self.start + size / self.rate


class Hindsight(NamedTuple):
    """Seconds with the best shares, with the planned ones at the actual rates, and from the best source alone.

    None where that is not known: nothing was planned, or a source could not deliver its planned share. `shares` are the
    best ones, in bytes; `waits` is the index of the source for which the plan waits longest.
    """

    best: float
    shares: list[float]
    planned: float | None
    waits: int | None
    single: float | None


def hindsight(size: int, sources: Sequence[Able | None]) -> Hindsight | None:
    """Return the hindsight of a transfer of `size` bytes; None if the sources could not have delivered them.

    :param sources: abilities of the sources; None for a source about which nothing is known
    """
    able = [each for each in sources if each is not None]
    best = _level(size, able)
    if best is None:
        return None
    shares = [0.0 if each is None else each.until(best) for each in sources]
    planned, waits = _planned(size, sources)
    single = min((each.needs(size) for each in able), default=inf)
    return Hindsight(best, shares, planned, waits, None if single == inf else single)


def _level(size: int, able: Sequence[Able]) -> float | None:
    """Return the least T by which sources could deliver `size` bytes: between two turns, their sum is a straight line.

    Return None if they could never deliver them.
    """
    turns = {each.start for each in able} | {each.start + each.most / each.rate for each in able if each.most < inf}
    before = poured = 0.0
    for turn in sorted(turns):
        brought = sum(each.until(turn) for each in able)
        if brought >= size * (1 - ROUNDING):
            share = (size - poured) / (brought - poured) if brought > poured else 1.0
            return before + (turn - before) * min(1.0, share)
        before, poured = turn, brought
    speed = sum(each.rate for each in able if each.most == inf)
    return before + (size - poured) / speed if speed else None


def _planned(size: int, sources: Sequence[Able | None]) -> tuple[float | None, int | None]:
    """Return the seconds that the planned shares take, and the index of the source that ends last; None if unknown."""
    shares = [each.planned if each else None for each in sources]
    if sum(share or 0 for share in shares) != size:
        return None, None
    ends = [each.needs(share) if each and share else 0.0 for each, share in zip(sources, shares, strict=True)]
    last = max(range(len(ends)), key=ends.__getitem__)
    return (None, None) if ends[last] == inf else (ends[last], last)
