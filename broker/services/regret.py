"""What a transfer's sources could have done at best, known afterwards what each was able to. Pure.

Each source has a moment from which on its bytes could flow, and a rate at which they then did: what it delivers until T
is a straight line. The best shares let all end together (water filling); no other shares end sooner, since until then
no more bytes could have come. How far the plan's shares are from that is lost to prediction; what was done may be
better or worse than the plan: that is the scheme's.
"""

from collections.abc import Sequence
from math import inf
from typing import NamedTuple

__all__ = ["Able", "Hindsight", "hindsight"]


class Able(NamedTuple):
    """What a source was able to.

    :param start: seconds from the beginning until its bytes could flow
    :param rate: bytes per second from then on
    :param most: bytes that it could give in all: it failed after these
    :param planned: bytes that it was to give; None where no shares were planned
    """

    start: float
    rate: float
    most: float = inf
    planned: int | None = None

    def until(self, level: float) -> float:
        """Bytes that it could have delivered by then."""
        return min(self.most, max(0.0, level - self.start) * self.rate)

    def needs(self, size: float) -> float:
        """Seconds for so many bytes; infinite if it has failed before."""
        return inf if size > self.most else self.start + size / self.rate


class Hindsight(NamedTuple):
    """Seconds with the best shares, with the planned ones at the rates that came, and from the best source alone.

    None where that cannot be said: nothing was planned, or what was to come from a source that could not. `shares` are
    the best, bytes; `waits` is the source for which the plan waits longest.
    """

    best: float
    shares: list[float]
    planned: float | None
    waits: int | None
    single: float | None


def hindsight(size: int, sources: Sequence[Able | None]) -> Hindsight | None:
    """What would have been, for so many bytes; None if they could not have brought them.

    :param sources: None are those of which nobody can say
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
    """The least T by which they can have brought `size` bytes: between two turns their sum is a straight line."""
    turns = {each.start for each in able} | {each.start + each.most / each.rate for each in able if each.most < inf}
    before = poured = 0.0
    for turn in sorted(turns):
        brought = sum(each.until(turn) for each in able)
        if brought >= size:
            return before + (turn - before) * (size - poured) / (brought - poured) if brought > poured else turn
        before, poured = turn, brought
    speed = sum(each.rate for each in able if each.most == inf)
    return before + (size - poured) / speed if speed else None


def _planned(size: int, sources: Sequence[Able | None]) -> tuple[float | None, int | None]:
    """How long the planned shares take, and which source ends last with its own."""
    shares = [each.planned if each else None for each in sources]
    if sum(share or 0 for share in shares) != size:
        return None, None
    ends = [each.needs(share) if each and share else 0.0 for each, share in zip(sources, shares, strict=True)]
    last = max(range(len(ends)), key=ends.__getitem__)
    return (None, None) if ends[last] == inf else (ends[last], last)
