"""The wait of a piece of a file for its turn, if a rate is limited."""

from collections.abc import Awaitable, Callable
from typing import NamedTuple

__all__ = ["Admission"]


class Admission(NamedTuple):
    """A rate limit: before each piece, of at most `piece` bytes, await `wait(number of bytes)`."""

    piece: int
    wait: Callable[[int], Awaitable[None]]
