"""A range requested on a shared connection, with a record of the bytes that have arrived. No I/O."""

from typing import Protocol

from coalloc.engine.span import Deliver, Span
from coalloc.errors import LimitExceeded, SourceError
from coalloc.util.intervals import Intervals

__all__ = ["RangeRequest"]

MOST_GAPS = 256
"""Maximum number of separate parts of a range, as each takes memory; servers send few parts out of order."""


class Over(Protocol):
    """A future that completes when a range is over; its awaiter may also cancel it."""

    def done(self) -> bool: ...

    def set_result(self, result: None) -> None: ...

    def set_exception(self, exception: BaseException) -> None: ...


class RangeRequest:
    """A requested range, with a record of the bytes that have arrived.

    :param over: set when all wanted bytes are delivered, or no more will come; no bytes are delivered afterwards
    """

    def __init__(self, span: Span, deliver: Deliver, over: Over) -> None:
        self.span = span
        self.start = span.start
        self.left = self._requested = span.end - span.start
        self.received = Intervals()
        self.refusal: SourceError | None = None
        self._deliver = deliver
        self._over = over

    @property
    def wanted(self) -> bool:
        return not self._over.done()

    @property
    def complete(self) -> bool:
        length = self.span.end - self.start
        return self.received.total >= length and self.received.covers(self.start, self.span.end)

    def take(self, offset: int, view: memoryview) -> None:
        """Deliver received bytes, as far as they are wanted; they begin `offset` bytes after the range's start.

        :raises LimitExceeded: when they are outside the range, or the range arrives in too many parts
        """
        self.left -= len(view)
        if self.left < 0 or offset + len(view) > self._requested:
            raise _too_much("bytes that were not requested")
        if len(self.received) > MOST_GAPS:
            raise _too_much(f"a range in more than {MOST_GAPS} scattered parts")
        if not self.wanted:
            return
        start = self.start + offset
        end = min(start + len(view), self.span.end)
        if start < end:
            self.received.add(start, end)
            try:
                self._deliver(start, end, view[: end - start])
            except Exception as error:
                self.end(error)
        if self.complete:
            self.end()

    def end(self, error: BaseException | None = None) -> None:
        """End the range: no more bytes are delivered. May be called twice."""
        if not self.wanted:
            return
        if error:
            self._over.set_exception(error)
        else:
            self._over.set_result(None)


def _too_much(what: str) -> LimitExceeded:
    return LimitExceeded(f"the server sends {what}", "use another replica, or tell the server's admin")
