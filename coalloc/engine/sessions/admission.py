"""Pieces of a range that are admitted one after the other, if the rate of a replica is limited.

A piece is admitted before it is requested from the server, not when its bytes are read. A copy between two servers
can be slowed down in no other way; and a slow reader of a download would still let megabytes flow into buffers.
"""

from collections.abc import Iterator

from coalloc.engine.sessions.work import RangePart
from coalloc.engine.span import Span
from coalloc.util.intervals import Intervals

__all__ = ["pieces"]


def pieces(span: Span, most: int) -> Iterator[RangePart]:
    """Yield the missing parts of a range in order, each of at most `most` bytes. The end may be lowered meanwhile.

    >>> [(piece.start, piece.end) for piece in pieces(Span(0, 9, skip=[(4, 7)]), 3)]
    [(0, 3), (3, 4), (7, 9)]
    """
    at, here = span.start, Intervals(span.skip)
    while gaps := here.gaps(at, span.end):
        start, end = gaps[0]
        at = min(end, start + most)
        yield RangePart(span, start, at)
