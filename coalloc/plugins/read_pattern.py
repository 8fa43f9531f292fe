"""The order in which a program reads a file, and what it will probably read next. Pure.

Libraries of arrays read chunks of one length at regular distances, and small nodes of an index in between.
"""

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from itertools import zip_longest
from typing import NamedTuple

__all__ = ["ReadPattern"]

MOST_STREAMS = 4
"""Number of lengths of reads that are remembered."""
MOST_FOLLOWING, MOST_BYTES = 16, 8 << 20
"""Maximum number of reads that are expected of one length, and of the bytes of all."""
TOLERANCE = 16
"""Distances are the same if they differ by at most the length of the read divided by this: index nodes lie between."""

Range = tuple[int, int]


class ReadStream(NamedTuple):
    """The reads of one length: the last one, their usual distance, and how often it was seen, less after others."""

    start: int
    distance: int
    confirmed: int


class ReadPattern:
    """The last reads of a file of `size` bytes, by their length."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._streams: OrderedDict[int, ReadStream] = OrderedDict()

    def following(self, start: int, end: int) -> Sequence[Range]:
        """Count a read of [start, end), and return the ranges that will probably follow.

        Each read at the same distance as the one before it allows one more range. Nothing is expected of reads without
        gaps between them.

        >>> pattern = ReadPattern(1000)
        >>> [list(pattern.following(start, start + 10)) for start in (0, 100, 200, 300)]
        [[], [], [(300, 310)], [(400, 410), (500, 510)]]
        """
        length = end - start
        last = self._streams.pop(length, None) or ReadStream(start, 0, 0)
        distance = start - last.start
        if abs(distance - last.distance) <= length // TOLERANCE and abs(distance) > length:
            stream = ReadStream(start, distance, last.confirmed + 1)
        elif last.confirmed > 1:  # as when a node of an index is left out
            stream = ReadStream(start, last.distance, last.confirmed // 2)
        else:
            stream = ReadStream(start, distance, 0)
        self._streams[length] = stream
        if len(self._streams) > MOST_STREAMS:
            self._streams.popitem(last=False)
        rounds = zip_longest(*(self._expected(*stream) for stream in reversed(self._streams.items())))  # newest first
        return _bounded(each for one in rounds for each in one if each)

    def _expected(self, length: int, stream: ReadStream) -> Sequence[Range]:
        most = min(stream.confirmed, MOST_FOLLOWING, MOST_BYTES // max(1, length))
        starts = (stream.start + number * stream.distance for number in range(1, most + 1))
        return [(start, min(start + length, self._size)) for start in starts if 0 <= start < self._size]


def _bounded(ranges: Iterable[Range]) -> Sequence[Range]:
    """Return the first ranges, of `MOST_BYTES` at most."""
    left, found = MOST_BYTES, []
    for start, end in ranges:
        left -= end - start
        if left < 0:
            break
        found.append((start, end))
    return found
