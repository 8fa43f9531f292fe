"""A piece in flight from one host to another: the bytes requested, and the bytes that have arrived."""

import asyncio
from collections.abc import Awaitable, Callable

from coalloc.collect.methods.actions import Piece
from coalloc.errors import ConnectionLost
from coalloc.util.intervals import Intervals

__all__ = ["Hop"]


class Hop:
    """The transfer of one piece from one host to another, run by a `HopQueue`.

    :param route: labels of source and sink
    :param paths: the path at the source, and a function that returns the path at the sink, called after `prepare`
    :param prepare: function that makes the target
    :param on_change: function called when more bytes have arrived, and when the hop is `over`
    """

    def __init__(
        self,
        piece: Piece,
        route: tuple[str, str],
        paths: tuple[str, Callable[[], str]],
        prepare: Callable[[], Awaitable[None]],
        on_change: Callable[["Hop"], None],
    ) -> None:
        self.piece = piece
        self.route = route
        self.source_path, self._sink_path = paths
        self.prepare = prepare
        self._on_change = on_change
        self.left = Intervals([piece[1:]])
        """Bytes that still have to be requested."""
        self.arrived = Intervals()
        self.counted = 0
        """Number of bytes that the carrier has counted, or must not count."""
        self.requested = False
        self.failures = 0
        """Consecutive failures caused by this hop."""
        self.over = False
        self.error: Exception | None = None
        self.at_fault = False
        """Whether the hop failed on its own account: the hops of its pair that come after it may succeed."""
        self._flying = 0
        self.ended = asyncio.Event()
        """Set when the hop is over."""
        self.landed = asyncio.Event()
        """Set when the hop is over and none of its bytes are in flight any more."""

    @property
    def sink_path(self) -> str:
        """The path at the sink, available after `prepare`."""
        return self._sink_path()

    @property
    def has_requests_left(self) -> bool:
        """Return whether something still has to be requested: missing bytes, or an empty piece once."""
        return not self.over and (bool(self.left) or not self.requested)

    def take(self, most: int) -> tuple[int, int]:
        """Return the next range [start, end) to request, marked as in flight; an empty range for an empty piece."""
        self.requested = True
        self._flying += 1
        start, end = next(iter(self.left), self.piece[1:])
        end = min(end, start + most)
        self.left.remove(start, end)
        return start, end

    def received(self, start: int, end: int) -> None:
        """Record that these bytes are stored permanently."""
        if self.over:
            return
        self.arrived.add(start, end)
        self._on_change(self)

    def found(self, start: int, end: int) -> None:
        """Record that these bytes were stored before, and so are no traffic."""
        if self.over:
            return
        before = self.arrived.total
        self.arrived.add(start, end)
        self.counted += self.arrived.total - before
        self._on_change(self)

    def returned(self, start: int, end: int, error: Exception | None) -> None:
        """Record that a taken range is no longer in flight; after an error, its missing bytes are requested again."""
        self._flying -= 1
        if error is None:
            self.failures = 0
            self.arrived.add(start, end)
        for gap in self.arrived.gaps(start, end):
            self.left.add(*gap)
        if error and not self.piece.size:
            self.requested = False
        if self.requested and not self._flying and self.arrived.covers(*self.piece[1:]):
            self.end()
        if self.over and not self._flying:
            self.landed.set()

    def end(self, error: Exception | None = None) -> None:
        """End the hop, as failed if there is an error, and report it. May be called twice."""
        if self.over:
            return
        self.stop()
        self.error = error
        self._on_change(self)

    def stop(self) -> None:
        """Cancel the hop without a report. May be called twice."""
        if not self.over:
            self.over, self.error = True, ConnectionLost("it was cancelled", "copy it again")
            self.ended.set()
        if not self._flying:
            self.landed.set()
