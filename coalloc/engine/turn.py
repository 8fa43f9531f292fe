"""A range that was asked for on a connection that several share, and which of its bytes are here. No I/O."""

from typing import Protocol

from coalloc.engine.base import Deliver, Span
from coalloc.errors import SourceError
from coalloc.intervals import Intervals

__all__ = ["Turn"]


class Over(Protocol):
    """What tells that a range is over: a future, which whoever waits for it may also cancel."""

    def done(self) -> bool: ...

    def set_result(self, result: None) -> None: ...

    def set_exception(self, exception: BaseException) -> None: ...


class Turn:
    """A range that was asked for: which of its bytes are here.

    :param over: is set when all that is wanted is delivered, or no more will come; once it is, nothing is delivered
    """

    def __init__(self, span: Span, deliver: Deliver, over: Over) -> None:
        self.span = span
        self.start = span.start
        self.left = span.end - span.start
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
        """Deliver what is wanted of these bytes, which lie `offset` behind the range's start."""
        self.left -= len(view)
        if not self.wanted:
            return
        start = self.start + offset
        end = min(start + len(view), self.span.end)
        if start < end:
            self.received.add(start, end)
            try:
                self._deliver(start, view[: end - start])
            except Exception as error:
                self.end(error)
        if self.complete:
            self.end()

    def end(self, error: BaseException | None = None) -> None:
        """Deliver nothing more; may be called twice."""
        if not self.wanted:
            return
        if error:
            self._over.set_exception(error)
        else:
            self._over.set_result(None)
