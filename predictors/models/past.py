"""In what state a path was when a transfer began: what those tell that had ended by then.

Transfers come in bursts, and a system is fast or slow for a while. The newest that ended is a poor witness of that:
it may have begun an hour ago. The one that *began* last tells more, and so does how long ago that was: all that began
since are still under way. Where those as small as the one that is asked about take long of late, it will, too.
"""

from bisect import bisect_right
from math import inf, log, log1p
from operator import attrgetter
from typing import NamedTuple
from zlib import crc32

from predictors.experience import RECENT
from predictors.observation import Observation, Query

__all__ = ["BY_SIZE", "Features", "Past"]

BY_SIZE = 0.5
"""Rates are compared as if they grew with this power of the size: 1 would compare elapsed times, 0 the rates."""
LIKE = log(4.0)
"""As small as another is what exceeds it in log size by no more than this."""
GAIN = 0.1
"""What the newest transfer counts in the level."""
NAN = float("nan")


class Features(NamedTuple):
    """What is known of a transfer when it begins.

    `size`: its log; `load`: log(1 + concurrency); `kind`: a number for the kind of file. Of those that had ended:
    `rate`: the log rate of the newest, as it was; `level`: their mean log rate, discounted; `begun`: the log of the
    seconds since one began; `like_rate` and `like_begun`: the log rate of the one that began last among those as small
    as this, and the log of the seconds since. Both rates but the first are compared `BY_SIZE`. NaN: not known.
    """

    size: float
    load: float
    kind: float
    rate: float
    level: float
    begun: float
    like_rate: float
    like_begun: float


class Ended(NamedTuple):
    """A transfer that ended, its log rate compared `BY_SIZE`, and its log size."""

    end: float
    start: float
    value: float
    size: float


class Past:
    """The transfers of one path that ended of late."""

    def __init__(self) -> None:
        self._ended: list[Ended] = []
        self._levels: list[float] = []
        self._level = NAN

    def learn(self, observation: Observation, rate: float) -> None:
        """Take in a transfer; those that come late are sorted in."""
        size = log(observation.bytes)
        ended = Ended(observation.end, observation.start, log(rate) - BY_SIZE * size, size)
        place = bisect_right(self._ended, ended)
        self._ended.insert(place, ended)
        level = self._levels[place - 1] if place else self._level
        del self._levels[place:]
        for each in self._ended[place:]:
            level = each.value if level != level else level + GAIN * (each.value - level)
            self._levels.append(level)
        if len(self._ended) > RECENT:
            self._level = self._levels[0]
            del self._ended[0], self._levels[0]

    def features(self, of: Query | Observation, at: float) -> Features:
        """What is known of a transfer that began, or begins, at a moment."""
        size = log(of.bytes) if of.bytes else NAN
        load, kind = log1p(of.concurrency), float(crc32(of.file_class.encode()))
        before = bisect_right(self._ended, (at, inf))
        if not before:
            return Features(size, load, kind, NAN, NAN, NAN, NAN, NAN)
        newest_first = self._ended[before - 1 :: -1]
        last = max(newest_first, key=BEGUN)
        like = max((each for each in newest_first if each.size <= size + LIKE), key=BEGUN, default=last)
        newest, level = newest_first[0], self._levels[before - 1]
        rate, begun, like_begun = newest.value + BY_SIZE * newest.size, log1p(at - last.start), log1p(at - like.start)
        return Features(size, load, kind, rate, level, begun, like.value, like_begun)


BEGUN = attrgetter("start")
