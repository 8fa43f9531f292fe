"""The best duration that a transfer's sources could have achieved, computed afterwards.

Each source can deliver from a start time at a constant rate: the bytes that it delivers until T are a straight line.
With the best shares, all sources end together (water filling); no other shares end sooner, because no more bytes could
have arrived by then. The extra time of the planned shares is lost by the forecasts. The difference between the actual
transfer and the plan is due to the strategy.
"""

from collections.abc import Sequence
from math import inf
from typing import NamedTuple

__all__ = ["Able", "Hindsight", "hindsight"]


ROUNDING = 1e-7
"""Relative tolerance for the sum of bytes: a rounding error must not move the end to the start of the next source."""


class Able(NamedTuple):
    """The performance of a source.

    :param start: seconds from the start of the transfer until it could deliver its first byte
    :param rate: bytes per second after that
    :param most: most bytes that it could deliver before it failed; infinity if it did not fail
    :param planned: bytes of its planned share; None if no shares were planned
    """

    start: float
    rate: float
    most: float = inf
    planned: int | None = None

    def until(self, level: float) -> float:
        """Return the bytes that it could have delivered by `level`, in seconds from the start of the transfer."""
        return min(self.most, max(0.0, level - self.start) * self.rate)

    def needs(self, size: float) -> float:
        """Return the seconds until it could have delivered `size` bytes; infinity if it failed before."""
        return inf if size > self.most else self.start + size / self.rate


class Hindsight(NamedTuple):
    """The durations in seconds that a transfer could have had.

    :param best: with the best shares
    :param shares: best shares, in bytes
    :param planned: with the planned shares at the actual rates; None without a plan, or if a source failed before the
        end of its planned share
    :param waits: index of the source that ends last in the plan; None like `planned`
    :param single: from the best single source; None if no source could deliver all bytes
    """

    best: float
    shares: list[float]
    planned: float | None
    waits: int | None
    single: float | None


def hindsight(size: int, sources: Sequence[Able | None]) -> Hindsight | None:
    """Return the possible durations of a transfer of `size` bytes; None if the sources could not deliver them.

    :param sources: performance of the sources; None for an unknown one
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
    """Return the smallest T by which the sources could deliver `size` bytes; None if they never could.

    The sum of their bytes is a straight line between two changes, at which a source starts or fails.
    """
    changes = {each.start for each in able} | {each.start + each.most / each.rate for each in able if each.most < inf}
    before = poured = 0.0
    for change in sorted(changes):
        brought = sum(each.until(change) for each in able)
        if brought >= size * (1 - ROUNDING):
            share = (size - poured) / (brought - poured) if brought > poured else 1.0
            return before + (change - before) * min(1.0, share)
        before, poured = change, brought
    speed = sum(each.rate for each in able if each.most == inf)
    return before + (size - poured) / speed if speed else None


def _planned(size: int, sources: Sequence[Able | None]) -> tuple[float | None, int | None]:
    """Return the duration with the planned shares, and the index of the source that ends last; None if unknown."""
    shares = [each.planned if each else None for each in sources]
    if sum(share or 0 for share in shares) != size:
        return None, None
    ends = [each.needs(share) if each and share else 0.0 for each, share in zip(sources, shares, strict=True)]
    last = max(range(len(ends)), key=ends.__getitem__)
    return (None, None) if ends[last] == inf else (ends[last], last)
