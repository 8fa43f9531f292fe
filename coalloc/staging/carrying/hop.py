"""A piece on its way from one host to another one: what of it was asked for, and what is there."""

import asyncio
from collections.abc import Awaitable, Callable

from coalloc.errors import ConnectionLost
from coalloc.intervals import Intervals
from coalloc.staging.actions import Piece

__all__ = ["Hop"]


class Hop:
    """One hop. Lanes move it; `heard` is called when more has come, and when it is `over`.

    :param route: the labels of source and sink
    :param paths: what the channel calls the file at either end; the second is asked for after `prepare`
    :param prepare: makes the place that it goes to
    """

    def __init__(
        self,
        piece: Piece,
        route: tuple[str, str],
        paths: tuple[str, Callable[[], str]],
        prepare: Callable[[], Awaitable[None]],
        heard: Callable[["Hop"], None],
    ) -> None:
        self.piece = piece
        self.route = route
        self.source_path, self._sink_path = paths
        self.prepare = prepare
        self._heard = heard
        self.left = Intervals([piece[1:]])
        """What is to be asked for."""
        self.arrived = Intervals()
        self.counted = 0
        """How much of it somebody has taken note of."""
        self.asked = False
        self.failures = 0
        """How often it was to blame, in a row."""
        self.over = False
        self.error: Exception | None = None
        self._flying = 0
        self.ended = asyncio.Event()
        """Set when it is over."""
        self.landed = asyncio.Event()
        """Set when, besides, nothing of it is on its way any more."""

    @property
    def sink_path(self) -> str:
        """Once its place is made."""
        return self._sink_path()

    @property
    def waits(self) -> bool:
        """Whether some of it is to be asked for."""
        return not self.over and (bool(self.left) or not self.asked)

    def take(self, most: int) -> tuple[int, int]:
        """The next bytes [start, end) to ask for, which are on their way then; none of a piece without a byte."""
        self.asked = True
        self._flying += 1
        start, end = next(iter(self.left), self.piece[1:])
        end = min(end, start + most)
        self.left.remove(start, end)
        return start, end

    def received(self, start: int, end: int) -> None:
        """These bytes are there for good."""
        if self.over:
            return
        self.arrived.add(start, end)
        self.failures = 0
        self._heard(self)

    def returned(self, start: int, end: int, error: Exception | None) -> None:
        """What was taken is not on its way any more; with an error, what has not arrived of it is to be asked again."""
        self._flying -= 1
        if error is None:
            self.arrived.add(start, end)
        for gap in self.arrived.gaps(start, end):
            self.left.add(*gap)
        if error and not self.piece.size:
            self.asked = False
        if self.asked and not self._flying and self.arrived.covers(*self.piece[1:]):
            self.end()
        if self.over and not self._flying:
            self.landed.set()

    def end(self, error: Exception | None = None) -> None:
        """It is over; it has failed if there is an error. May be called twice."""
        if self.over:
            return
        self.stop()
        self.error = error
        self._heard(self)

    def stop(self) -> None:
        """It is over before it arrived, and nobody wants to hear of it. May be called twice."""
        if not self.over:
            self.over, self.error = True, ConnectionLost("it was cancelled", "copy it again")
            self.ended.set()
        if not self._flying:
            self.landed.set()
