"""A range that an engine delivers, whose end may be lowered meanwhile, and the function that takes its bytes. Pure."""

from collections.abc import Callable, Sequence

__all__ = ["Deliver", "Span"]

Deliver = Callable[[int, int, memoryview | None], None]
"""`deliver(start, end, data)`: the bytes [start, end) of the file have arrived.

`data` has these bytes, and is only valid during the call. It is None if they arrived at another server.
"""


class Span:
    """The range [start, end) of a file that an engine is delivering. Its end may be lowered meanwhile.

    Only the runner lowers `end`, only to a value >= start. The engine reads `end` before each delivery, delivers
    nothing at or beyond it, and ends its fetch when everything before it is delivered.

    :param skip: parts of the range that need not be delivered
    """

    __slots__ = ("end", "skip", "start")

    def __init__(self, start: int, end: int, skip: Sequence[tuple[int, int]] = ()) -> None:
        self.start = start
        self.end = end
        self.skip = skip
