"""A range that an engine delivers, whose end may be lowered meanwhile, and the function that takes its bytes. Pure.

The bytes before the end are wanted; it is never raised. Each level has its own end, which the level above lowers:
- `RunningCopy.end` of the scheduler, which a steal lowers; the action `Shorten` passes it to the runner;
- `Span.end` of the range at the engine, which the runner lowers;
- `RangePart.end` of the part of one of several sessions: never beyond the end of the whole range, and lowered further
  when another session steals the tail.
An engine also remembers the end that it requested from its server. Bytes between the current end and the requested one
may still come; they are not delivered.
"""

from collections.abc import Awaitable, Callable, Iterator, Sequence

from coalloc.util.intervals import Intervals

__all__ = ["Deliver", "PacedSpan", "RangePart", "Span", "pieces"]

Deliver = Callable[[int, int, memoryview | None], None]
"""`deliver(start, end, data)`: the bytes [start, end) of the file have arrived.

`data` has these bytes, and is valid only during the call. It is None if they arrived at another server.
"""


class Span:
    """The range [start, end) of a file that an engine is delivering. Its end may be lowered meanwhile.

    Only its owner (the runner, or `engine.sessions` for the parts of a range) lowers `end`, to a value of at least
    `start`.
    The engine reads `end` before each delivery, delivers nothing at or beyond it, and ends its fetch when everything
    before it is delivered.

    :param skip: parts of the range that need not be delivered
    """

    __slots__ = ("end", "skip", "start")

    def __init__(self, start: int, end: int, skip: Sequence[tuple[int, int]] = ()) -> None:
        self.start = start
        self.end = end
        self.skip = skip

    @property
    def held(self) -> bool:
        """Return whether the engine waits in `admitted`, so that no bytes can come."""
        return False

    async def admitted(self, at: int) -> int:
        """Wait until bytes from offset `at` on may be read; return the end of those that may.

        An engine calls this before it reads more of a file that it can only read as a whole. Other ranges are requested
        when they may be read.
        """
        return self.end


class RangePart(Span):
    """A part of `whole` that never reaches beyond the end of `whole`; the bytes before `at` are delivered."""

    __slots__ = ("_end", "_requested_end", "_whole", "at")

    def __init__(self, whole: Span, start: int, end: int) -> None:
        self._whole = whole
        super().__init__(start, end)
        self.at = start
        self._requested_end = end

    @property
    def end(self) -> int:
        return max(self.start, min(self._end, self._whole.end))

    @end.setter
    def end(self, end: int) -> None:
        self._end = end

    @property
    def left(self) -> int:
        return max(0, self.end - self.at)

    @property
    def delivered(self) -> bool:
        """Return whether all requested bytes are delivered, also those beyond an end that was lowered since."""
        return self.at >= self._requested_end


class PacedSpan(RangePart):
    """All of `whole`, of which each piece may be read only after `await wait(number of bytes)`.

    :param most: maximum bytes of a piece
    """

    __slots__ = ("_admitted", "_held", "_most", "_wait")

    def __init__(self, whole: Span, most: int, wait: Callable[[int], Awaitable[None]]) -> None:
        super().__init__(whole, whole.start, whole.end)
        self._most = most
        self._wait = wait
        self._admitted = whole.start
        self._held = False

    @property
    def held(self) -> bool:
        return self._held

    async def admitted(self, at: int) -> int:
        self._held = True
        try:
            while self._admitted <= at and self._admitted < self.end:  # bytes read beyond the last piece count, too
                nbytes = min(self._most, self.end - self._admitted)
                await self._wait(nbytes)
                self._admitted += nbytes
        finally:
            self._held = False
        return self._admitted


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
