"""Pieces of a range for which leave is asked, one after the other, where the rate of a replica is limited.

Leave comes before a piece is asked of the server, not when its bytes are read: a copy between two servers can be held
back in no other way, and of a download that is read slowly megabytes still flow, into the buffers on the way.
"""

from collections.abc import Iterator

from coalloc.engine.base import Span
from coalloc.engine.hands import Part
from coalloc.intervals import Intervals

__all__ = ["pieces"]


def pieces(span: Span, most: int) -> Iterator[Part]:
    """What of a range is to be delivered, front to back, at most so many bytes at once; its end may be lowered.

    >>> [(piece.start, piece.end) for piece in pieces(Span(0, 9, skip=[(4, 7)]), 3)]
    [(0, 3), (3, 4), (7, 9)]
    """
    at, here = span.start, Intervals(span.skip)
    while gaps := here.gaps(at, span.end):
        start, end = gaps[0]
        at = min(end, start + most)
        yield Part(span, start, at)
