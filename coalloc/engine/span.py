"""A range that an engine delivers, whose end may be lowered meanwhile, and the function that takes its bytes. Pure."""

from collections.abc import Callable, Sequence

__all__ = ["Deliver", "Span"]

Deliver = Callable[[int, memoryview], None]
"""`deliver(offset, view)`: these bytes of the file have arrived. The view is only valid during the call.

If they arrived at another server, only the length of the view counts.
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
