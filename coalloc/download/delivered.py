"""The pieces that a reader was given, and their comparison with the same bytes of other sources. Pure."""

from collections.abc import Iterable, Sequence

from zlib_ng import zlib_ng

from coalloc.model.checksums import Extent
from coalloc.partial_file.pieces import Pieces
from coalloc.util.intervals import Intervals

__all__ = ["Delivered"]


class Delivered:
    """All pieces of a file, by sender, with their adler32; and those that were fetched again, to compare them."""

    def __init__(self) -> None:
        self._pieces = Pieces()
        self._doubted: Sequence[Extent] = ()
        self._again = Pieces()
        self._have_again = Intervals()

    @property
    def senders(self) -> set[int]:
        """The sources of all pieces."""
        return {piece.source for piece in self._pieces}

    def add(self, extents: Iterable[Extent]) -> None:
        """Add pieces that have arrived."""
        for extent in extents:
            self._pieces.add(extent.start, extent.end, extent.source, extent.adler32)

    def revoke(self, start: int, end: int) -> None:
        """Remove [start, end), which the reader will not be given."""
        self._pieces.remove(start, end)

    def of(self, source: int, ranges: Intervals) -> list[Extent]:
        """Return the pieces of a source that have bytes in these ranges."""
        return [
            Extent(piece.start, piece.end, source, piece.adler32)
            for piece in self._pieces
            if piece.source == source and ranges.within(piece.start, piece.end)
        ]

    def doubt(self, pieces: Sequence[Extent]) -> None:
        """Begin to compare these pieces with bytes that are fetched again."""
        self._doubted = pieces

    def compare(self, start: int, data: memoryview) -> None:
        """Add bytes of doubted pieces that were fetched again."""
        for number, piece in enumerate(self._doubted):
            inside = max(start, piece.start), min(start + len(data), piece.end)
            for begin, end in self._have_again.gaps(*inside):
                self._again.add(begin, end, number, zlib_ng.adler32(data[begin - start : end - start]))
                self._have_again.add(begin, end)

    def different(self) -> list[Extent]:
        """Return the doubted pieces that are not the same as what was fetched again."""
        found = {(piece.start, piece.end, piece.adler32) for piece in self._again}
        return [piece for piece in self._doubted if (piece.start, piece.end, piece.adler32) not in found]
