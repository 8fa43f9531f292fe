"""The delivered ranges as the fewest pieces: adjacent bytes of one source are one piece with one checksum. Pure.

So memory depends on how often sources alternate in the file, not on its size. The caller must not add overlapping
pieces.
"""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator

from coalloc.util.checksums import adler32_combine, rolling

__all__ = ["DeliveredPiece", "Pieces"]


class DeliveredPiece:
    """Bytes [start, end) from one source. A checksum is None if it is not kept, or not known any more."""

    __slots__ = ("adler32", "crc", "end", "source", "start")

    def __init__(self, start: int, end: int, source: int, adler32: int | None, crc: int | None = None) -> None:
        self.start = start
        self.end = end
        self.source = source
        self.adler32 = adler32
        self.crc = crc

    def extend(self, end: int, adler32: int | None, crc: int | None, kind: str) -> None:
        """Append the bytes from this piece's end up to `end`, with their checksums; `kind` is the CRC's algorithm."""
        length = end - self.end
        self.end = end
        self.adler32 = (
            None if self.adler32 is None or adler32 is None else adler32_combine(self.adler32, adler32, length)
        )
        self.crc = None if self.crc is None or crc is None else rolling(kind).combine(self.crc, crc, length)


class Pieces:
    """Disjoint pieces, indexed by their ends and their starts.

    :param crc: algorithm of the pieces' CRCs

    >>> pieces = Pieces()
    >>> pieces.add(0, 10, source=0, adler32=1); pieces.add(20, 30, 1, 1); pieces.add(10, 20, 0, 1)
    >>> [(p.start, p.end, p.source) for p in pieces]
    [(0, 20, 0), (20, 30, 1)]
    """

    __slots__ = ("_by_end", "_by_start", "_crc", "_starts")

    def __init__(self, crc: str = "crc32") -> None:
        self._crc = crc
        self._by_end: dict[int, DeliveredPiece] = {}
        self._by_start: dict[int, DeliveredPiece] = {}
        self._starts: list[int] = []
        """Starts of the pieces, in order."""

    def __iter__(self) -> Iterator[DeliveredPiece]:
        return iter([self._by_start[start] for start in self._starts])

    def __len__(self) -> int:
        return len(self._starts)

    def add(self, start: int, end: int, source: int, adler32: int | None, crc: int | None = None) -> None:
        """Add [start, end), which must not overlap any piece; it joins its neighbours of the same source."""
        before = self._by_end.get(start)
        if before is not None and before.source == source:
            del self._by_end[start]
            before.extend(end, adler32, crc, self._crc)
        else:
            before = DeliveredPiece(start, end, source, adler32, crc)
            self._begin(before)
        after = self._by_start.get(end)
        if after is not None and after.source == source:
            self._forget(after)
            before.extend(after.end, after.adler32, after.crc, self._crc)
        self._by_end[before.end] = before

    def ending_at(self, end: int) -> DeliveredPiece | None:
        """Return the piece that ends at `end`."""
        return self._by_end.get(end)

    def remove(self, start: int, end: int) -> None:
        """Remove [start, end). The remaining parts of a piece that is cut lose their checksums."""
        if start >= end:
            return
        first = max(0, bisect_right(self._starts, start) - 1)  # the last that begins before, and may overlap
        touched = self._starts[first : bisect_left(self._starts, end)]
        for piece in [piece for at in touched if (piece := self._by_start[at]).end > start]:
            self._forget(piece)
            del self._by_end[piece.end]
            for a, b in ((piece.start, start), (end, piece.end)):
                if a < b:
                    left = self._by_end[b] = DeliveredPiece(a, b, piece.source, None)
                    self._begin(left)

    def clear(self) -> None:
        """Remove all pieces."""
        self._by_end.clear()
        self._by_start.clear()
        self._starts.clear()

    def _begin(self, piece: DeliveredPiece) -> None:
        self._by_start[piece.start] = piece
        insort(self._starts, piece.start)

    def _forget(self, piece: DeliveredPiece) -> None:
        del self._by_start[piece.start], self._starts[bisect_left(self._starts, piece.start)]
