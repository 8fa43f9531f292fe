"""A range that an engine delivers, whose end may be lowered meanwhile, and the function that takes its bytes. Pure.

A range has one end, and it is only ever lowered: the bytes before it are wanted, those at or beyond it are not. It is
kept once at each level, and goes from one to the next:

- `RunningCopy.end` of the scheduler, which a steal lowers; the action `Shorten` hands it on;
- `Span.end` of the range at the engine, which the runner lowers then;
- `RangePart.end` of a part that one of several sessions delivers: never beyond that of the whole range, and lowered
  further when another session steals the tail.

Apart from that, an engine knows which end it requested from its server. Bytes between the present end and the requested
one may still come; they are not delivered.
"""

from collections.abc import Callable, Sequence

__all__ = ["Deliver", "Span"]

Deliver = Callable[[int, int, memoryview | None], None]
"""`deliver(start, end, data)`: the bytes [start, end) of the file have arrived.

`data` has these bytes, and is only valid during the call. It is None if they arrived at another server.
"""


class Span:
    """The range [start, end) of a file that an engine is delivering. Its end may be lowered meanwhile.

    Only its owner lowers `end` (the runner, or `engine.sessions` for the parts of a range), only to a value >= start.
    The engine reads `end` before each delivery, delivers nothing at or beyond it, and ends its fetch when everything
    before it is delivered.

    :param skip: parts of the range that need not be delivered
    """

    __slots__ = ("end", "skip", "start")

    def __init__(self, start: int, end: int, skip: Sequence[tuple[int, int]] = ()) -> None:
        self.start = start
        self.end = end
        self.skip = skip
