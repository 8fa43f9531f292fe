"""The bytes ahead of a reader that takes a file in order: a buffer of bounded size. Pure."""

from collections.abc import Sequence

from zlib_ng import zlib_ng

from coalloc.model.checksums import Extent
from coalloc.partial_file.pieces import Pieces
from coalloc.util.intervals import Intervals

__all__ = ["ReadAhead"]


class ReadAhead:
    """A ring of the bytes [front, opened) of a file, which arrive in any order and are taken in order.

    :param size: bytes in the file
    :ivar front: the first byte that the reader has not taken
    :ivar room: maximum number of bytes in the ring
    """

    def __init__(self, size: int, room: int) -> None:
        self._size = size
        self.room = room
        self._ring = memoryview(bytearray(min(size, room)))
        self._held = Intervals()
        self._pieces = Pieces()
        self.front = 0

    @property
    def opened(self) -> int:
        """The number of bytes, from the first one of the file on, for which there is room."""
        return min(self._size, self.front + len(self._ring))

    @property
    def reach(self) -> int:
        """The first byte that is missing."""
        return max(self.front, self._held.reach(self.front))

    def put(self, source: int, start: int, data: memoryview) -> list[Extent]:
        """Keep the bytes from `start` on, as far as they are neither held nor taken; return them with their adler32."""
        fresh = []
        for begin, end in self._held.gaps(max(start, self.front), start + len(data)):
            part = data[begin - start : end - start]
            for at, view in self._views(begin, end):
                view[:] = part[at - begin : at - begin + len(view)]
            fresh.append(Extent(begin, end, source, zlib_ng.adler32(part)))
            self._held.add(begin, end)
            self._pieces.add(begin, end, source, None)
        return fresh

    def views(self, start: int, end: int) -> list[memoryview]:
        """Return the bytes [start, end), which are held, in one or two parts."""
        return [view for _, view in self._views(start, end)]

    def _views(self, start: int, end: int) -> list[tuple[int, memoryview]]:
        """Return the parts of the ring for [start, end), with the place of each in the file."""
        if start >= end:
            return []
        at, room = start % len(self._ring), len(self._ring)
        first = min(end - start, room - at)
        parts = [(start, self._ring[at : at + first])]
        return parts if first == end - start else [*parts, (start + first, self._ring[: end - start - first])]

    def take(self, end: int) -> None:
        """Make room: the reader has taken the bytes before `end`."""
        self._held.remove(self.front, end)
        self._pieces.remove(self.front, end)
        self.front = end

    def revoke(self, start: int, end: int) -> None:
        """Make [start, end) missing again."""
        self._held.remove(start, end)
        self._pieces.remove(start, end)

    def pieces(self) -> Sequence[Extent]:
        """Return the held ranges in order, with their senders."""
        return [Extent(piece.start, piece.end, piece.source) for piece in self._pieces]
