"""The state of a path when a transfer begins, from the transfers that had ended by then.

Transfers come in bursts, and a system is fast or slow for a while. The transfer that ended last is weak evidence of
the current state: it may have begun an hour ago. The one that *began* last reveals more, and so does the time since
then, because all transfers begun since are still under way. If transfers of at most this size have been slow
recently, this one will be, too.
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
"""Exponent of the size by which rates are divided before comparing them: 0 compares rates, 1 durations."""
LIKE = log(4.0)
"""Tolerance in log size: a transfer that is larger by no more than this counts as "of at most this size"."""
GAIN = 0.1
"""Weight of the newest transfer in the level."""
NAN = float("nan")


class Features(NamedTuple):
    """The features of a transfer that are known when it begins.

    `size`: its log; `load`: log(1 + concurrency); `kind`: a number for the kind of file. From transfers that had ended:
    `rate`: the log rate of the newest; `level`: their discounted mean log rate; `begun`: log(1 + seconds since the last
    start); `like_rate` and `like_begun`: the log rate of the last to start of those of at most this size, and log(1 +
    seconds since then). All rates except `rate` are divided by size to the power of `BY_SIZE`. NaN: unknown.
    """

    size: float
    load: float
    kind: float
    rate: float
    level: float
    begun: float
    like_rate: float
    like_begun: float


class EndedTransfer(NamedTuple):
    """A transfer that ended; `size` is its log size, `value` its log rate minus `BY_SIZE` times `size`."""

    end: float
    start: float
    value: float
    size: float


class Past:
    """The transfers of one path that ended recently."""

    def __init__(self) -> None:
        self._ended: list[EndedTransfer] = []
        self._levels: list[float] = []
        self._level = NAN

    def learn(self, observation: Observation, rate: float) -> None:
        """Learn a transfer; insert a late one in its order."""
        size = log(observation.bytes)
        ended = EndedTransfer(observation.end, observation.start, log(rate) - BY_SIZE * size, size)
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
        """Return the features of a transfer that begins at a time."""
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
